// Package archive makes of Mailyard's source the archive that Google builds the functions from.
//
// The archive is the same to the byte for the same source: files in the order of their names, without
// times, owners or compression, as the compressor's output may change with Go's version. It holds what
// the root package needs and nothing else: no tests, no scripts, no Terraform, nothing that only runs on
// one machine. Google runs go mod tidy over it, so a test that came along would need what it imports.
package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A File is one of the archive.
type File struct {
	Name string // from the module's root, with slashes
	Data []byte
}

// Files returns what is deployed of the module in that directory, in the order of the names: its module
// files, and of each package that the root needs the sources and what they embed.
func Files(ctx context.Context, root string) ([]File, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	names, err := sources(ctx, root)
	if err != nil {
		return nil, err
	}
	names = append(names, "go.mod", "go.sum")
	slices.Sort(names)
	files := make([]File, len(names))
	for i, name := range names {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		files[i] = File{name, data}
	}
	return files, nil
}

// sources names the files of the root package and of what it imports of its own module. Files for other
// systems are among them: Google builds on Linux, whatever builds the archive.
func sources(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Module,GoFiles,IgnoredGoFiles,EmbedFiles", ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w\n%s", root, err, stderr.Bytes())
	}
	var names []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                                 string
			Module                              *struct{ Main bool }
			GoFiles, IgnoredGoFiles, EmbedFiles []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.EmbedFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			relative, err := filepath.Rel(root, filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			names = append(names, filepath.ToSlash(relative))
		}
	}
}

// Write writes the archive of these files.
func Write(w io.Writer, files []File) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.Name, Method: zip.Store}
		header.SetMode(0o644)
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(f.Data); err != nil {
			return err
		}
	}
	return archive.Close()
}
