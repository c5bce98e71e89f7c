// Command hello is the least function there can be, built as Google's build would.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
)

func init() {
	functions.HTTP("Hello", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
}

func main() {
	if err := funcframework.Start(os.Getenv("PORT")); err != nil {
		log.Fatalf("funcframework.Start: %v\n", err)
	}
}
