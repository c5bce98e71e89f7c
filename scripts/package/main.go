// Command package builds the archive of the functions' source, the same to the byte for the same source,
// and prints where it is, its size and its digest. Terraform names what it uploads by that digest.
//
// Run it in the module's root. Its exit status is 0 when it is done, 1 when it failed and 2 when it was
// misused.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"mailyard.internal/mailyard/scripts/package/archive"
)

func main() {
	out := flag.String("out", ".local/functions.zip", "where the archive goes")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), *out); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string) error {
	files, err := archive.Files(ctx, ".")
	if err != nil {
		return err
	}
	var data bytes.Buffer
	if err := archive.Write(&data, files); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(out, data.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d files, %d bytes, sha256 %x\n", out, len(files), data.Len(), sha256.Sum256(data.Bytes()))
	return nil
}
