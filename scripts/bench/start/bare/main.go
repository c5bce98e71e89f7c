// Command bare is the bare function of a flag's lane, built as Google's build would. Its other function
// only answers: what it takes longer than hello's is the weight of the client libraries.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"sync"

	"cloud.google.com/go/firestore"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"mailyard.internal/mailyard/scripts/bench/bare"
)

var connect = sync.OnceValues(func() (*bare.Functions, error) {
	project := os.Getenv("GOOGLE_CLOUD_PROJECT")
	documents, err := firestore.NewClient(context.Background(), project)
	if err != nil {
		return nil, err
	}
	topics, err := pubsub.NewTopicAdminClient(context.Background())
	if err != nil {
		return nil, err
	}
	return bare.New(documents, topics, project), nil
})

func init() {
	functions.HTTP("Hello", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	functions.HTTP("Flag", func(w http.ResponseWriter, r *http.Request) {
		f, err := connect()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		f.Flag(w, r)
	})
}

func main() {
	if err := funcframework.Start(os.Getenv("PORT")); err != nil {
		log.Fatalf("funcframework.Start: %v\n", err)
	}
}
