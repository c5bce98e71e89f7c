package keyset_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mailyard.internal/mailyard/shared/keyset"
)

func open(t *testing.T, path string) *keyset.Keyset {
	t.Helper()
	k, err := keyset.FromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func seal(t *testing.T, k *keyset.Keyset, secret, account string) []byte {
	t.Helper()
	sealed, err := k.Seal(secret, account)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestMadeOnFirstUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys", "keyset.json")
	sealed := seal(t, open(t, path), "refresh-token", "a1")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the file's mode is %v", info.Mode())
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Another process has the same keyset.
	if got, err := open(t, path).Open(sealed, "a1"); err != nil || got != "refresh-token" {
		t.Errorf("opened again: %q, %v", got, err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was made again")
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the keyset there is %v, %v", left, err)
	}
}

func TestMadeByManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 16
	path := filepath.Join(t.TempDir(), "keyset.json")
	keysets := make([]*keyset.Keyset, many)
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range many {
		done.Go(func() {
			start.Wait()
			k, err := keyset.FromFile(path)
			if err != nil {
				t.Error(err)
			}
			keysets[i] = k
		})
	}
	start.Done()
	done.Wait()
	if t.Failed() {
		return
	}
	for i, k := range keysets {
		sealed := seal(t, k, "secret", "a1")
		if _, err := keysets[(i+1)%many].Open(sealed, "a1"); err != nil {
			t.Fatalf("two of %d have different keysets: %v", many, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	k := open(t, filepath.Join(t.TempDir(), "keyset.json"))
	stranger := open(t, filepath.Join(t.TempDir(), "keyset.json"))
	sealed := seal(t, k, "refresh-token", "a1")
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for _, c := range []struct {
		name    string
		keyset  *keyset.Keyset
		sealed  []byte
		account string
	}{
		{"another account", k, sealed, "a2"},
		{"no account", k, sealed, ""},
		{"another keyset", stranger, sealed, "a1"},
		{"a bit changed", k, changed, "a1"},
		{"cut short", k, sealed[:len(sealed)-1], "a1"},
		{"nothing", k, nil, "a1"},
		{"what was never sealed", k, []byte("refresh-token"), "a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.keyset.Open(c.sealed, c.account)
			if err == nil || got != "" {
				t.Fatalf("opened: %q", got)
			}
			if strings.Contains(err.Error(), "refresh-token") {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
	if bytes.Equal(seal(t, k, "refresh-token", "a1"), sealed) {
		t.Error("the same secret is sealed to the same bytes")
	}
	if bytes.Contains(sealed, []byte("refresh-token")) {
		t.Error("the secret can be read")
	}
}

func TestBrokenFile(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "keyset.json")
	open(t, whole)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "not JSON": "hello", "other JSON": `{"a":1}`, "no keys": `{"primaryKeyId":1,"key":[]}`,
		"cut short": string(data[:len(data)/2]), "no primary key": strings.Replace(string(data), `"primaryKeyId":`, `"primaryKeyId":1,"x":`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyset.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := keyset.FromFile(path)
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("the error is %v", err)
			}
			if after, _ := os.ReadFile(path); string(after) != text {
				t.Error("the broken file was replaced, and with it every credential lost")
			}
		})
	}
}

func TestPlaceThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := keyset.FromFile(dir); err == nil {
		t.Error("a directory was taken for a keyset")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keyset.FromFile(filepath.Join(file, "keyset.json")); err == nil || !strings.Contains(err.Error(), "keyset") {
		t.Errorf("below a file: %v", err)
	}
}
