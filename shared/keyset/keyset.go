// Package keyset encrypts credentials with a Tink keyset (AES-256-GCM), each with its account's id as
// associated data: what was sealed for one account cannot be opened for another.
package keyset

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// A Keyset seals and opens. It may be used by many goroutines.
type Keyset struct{ aead tink.AEAD }

// FromFile reads the keyset of a file, and makes the file, readable by its owner alone, where there is
// none. It is for local use: who can read the file can open every credential.
func FromFile(path string) (*Keyset, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := create(path); err != nil {
			return nil, fmt.Errorf("make the keyset file %s: %w", path, err)
		}
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the keyset file: %w", err)
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(data)))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Tink keyset in JSON; if no credential needs it any more, remove it and a new one is made", path)
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("the keyset of %s cannot encrypt: %w", path, err)
	}
	return &Keyset{primitive}, nil
}

// create writes a new keyset. Of two processes at once one makes the file, and both use it: it is
// linked in place whole, and never over another.
func create(path string) error {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return err
	}
	var data bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&data)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".keyset-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(data.Bytes())
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Seal encrypts a secret for an account.
func (k *Keyset) Seal(secret, account string) ([]byte, error) {
	sealed, err := k.aead.Encrypt([]byte(secret), []byte(account))
	if err != nil {
		return nil, fmt.Errorf("encrypt the credential of account %s: %w", account, err)
	}
	return sealed, nil
}

// Open decrypts what was sealed for the account. It fails for anything else, and for what another
// keyset sealed.
func (k *Keyset) Open(sealed []byte, account string) (string, error) {
	secret, err := k.aead.Decrypt(sealed, []byte(account))
	if err != nil {
		return "", fmt.Errorf("the credential of account %s was not sealed with this keyset", account)
	}
	return string(secret), nil
}
