// Command mailyard is the main that Google's build generates for the functions of this module.
package main

import (
	"log"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "mailyard.internal/mailyard"
)

func main() {
	if err := funcframework.Start(os.Getenv("PORT")); err != nil {
		log.Fatalf("funcframework.Start: %v\n", err)
	}
}
