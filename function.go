// Package mailyard is what Google Cloud Functions builds: it registers every entry point with the
// framework, and nothing else. Started without FUNCTION_TARGET, one process serves each of them at
// /<EntryPoint>.
package mailyard

import (
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"mailyard.internal/mailyard/shared/app"
)

func init() {
	entryPoints, err := app.New(os.LookupEnv, os.Stderr).EntryPoints()
	if err != nil {
		panic(err) // the catalogue is part of the program, and a test reads it
	}
	for _, e := range entryPoints {
		functions.HTTP(e.Name, e.Handler)
	}
}
