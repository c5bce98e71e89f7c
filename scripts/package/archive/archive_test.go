package archive_test

import (
	"archive/zip"
	"bytes"
	"path"
	"slices"
	"strings"
	"testing"

	"mailyard.internal/mailyard/scripts/package/archive"
)

const root = "../../.."

func build(t *testing.T) []byte {
	t.Helper()
	files, err := archive.Files(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if err := archive.Write(&data, files); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

func TestSameToTheByte(t *testing.T) {
	t.Parallel()
	if first, second := build(t), build(t); !bytes.Equal(first, second) {
		t.Errorf("two archives of one source differ: %d and %d bytes", len(first), len(second))
	}
}

// What only tests and this machine need stays at home. That what is left builds, as Google builds it, is
// shown by TestDeployedProgram.
func TestHoldsWhatIsDeployedAlone(t *testing.T) {
	t.Parallel()
	data := build(t)
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
		if !f.Modified.IsZero() && f.Modified.Year() > 1980 {
			t.Errorf("%s has a time: %v", f.Name, f.Modified)
		}
		for _, prefix := range []string{"scripts/", "terraform/", "shared/apptest/", "shared/gmailsim/", "README"} {
			if strings.HasPrefix(f.Name, prefix) {
				t.Errorf("%s is in the archive", f.Name)
			}
		}
		if strings.HasSuffix(f.Name, "_test.go") || strings.Contains(f.Name, "testdata/") || strings.HasPrefix(path.Base(f.Name), ".") {
			t.Errorf("%s is in the archive", f.Name)
		}
	}
	for _, needed := range []string{"function.go", "go.mod", "go.sum", "shared/lane/catalogue.json"} {
		if !slices.Contains(names, needed) {
			t.Errorf("%s is not in the archive", needed)
		}
	}
	if !slices.IsSorted(names) {
		t.Error("the archive's files are not in the order of their names")
	}
}
