package keyset

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tink-crypto/tink-go-gcpkms/v2/integration/gcpkms"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"mailyard.internal/mailyard/shared/fault"
)

// kmsTimeout bounds a call of Cloud KMS, so that a push is answered within 10 s when it is down.
const kmsTimeout = 5 * time.Second

// A Wrapper wraps keysets with a key that never leaves Cloud KMS, and unwraps them.
type Wrapper struct{ key tink.AEAD }

// CloudKMS returns the wrapper of a key, named gcp-kms://projects/…. It makes no call yet.
func CloudKMS(ctx context.Context, key string) (*Wrapper, error) {
	client, _, err := htransport.NewClient(ctx, option.WithScopes("https://www.googleapis.com/auth/cloudkms"))
	if err != nil {
		return nil, fmt.Errorf("find credentials for Cloud KMS: %w", err)
	}
	client.Timeout = kmsTimeout // Tink's client takes no context
	kms, err := gcpkms.NewClientWithOptions(ctx, key, option.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("open Cloud KMS: %w", err)
	}
	kek, err := kms.GetAEAD(key)
	if err != nil {
		return nil, fmt.Errorf("open Cloud KMS: %w", err)
	}
	return &Wrapper{kek}, nil
}

// WrapperOf returns a wrapper with any key.
func WrapperOf(key tink.AEAD) *Wrapper { return &Wrapper{key} }

// New makes a keyset and returns it wrapped, as MAILYARD_KEYSET has it.
func (w *Wrapper) New() (string, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return "", fmt.Errorf("make a keyset: %w", err)
	}
	var wrapped bytes.Buffer
	if err := handle.Write(keyset.NewBinaryWriter(&wrapped), w.key); err != nil {
		return "", fmt.Errorf("wrap the keyset; see that the key exists and that you have the role roles/cloudkms.cryptoKeyEncrypterDecrypter on it: %w", err)
	}
	return base64.StdEncoding.EncodeToString(wrapped.Bytes()), nil
}

// errNoKeyset repeats nothing of what it was given.
var errNoKeyset = errors.New("MAILYARD_KEYSET is not a Tink keyset that is wrapped by a key; write what mailyard keyset new prints, or what tinkey create-keyset with --master-key-uri writes")

// Unwrap returns the keyset of MAILYARD_KEYSET: Tink's encrypted keyset in JSON, or in base64.
func (w *Wrapper) Unwrap(wrapped string) (*Keyset, error) {
	data := []byte(strings.TrimSpace(wrapped))
	if !bytes.HasPrefix(data, []byte("{")) {
		var err error
		if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil || len(data) == 0 {
			return nil, errNoKeyset
		}
	}
	reader := func() keyset.Reader {
		if bytes.HasPrefix(data, []byte("{")) {
			return keyset.NewJSONReader(bytes.NewReader(data))
		}
		return keyset.NewBinaryReader(bytes.NewReader(data))
	}
	// Read once to tell what is no keyset from what the key cannot unwrap.
	if encrypted, err := reader().ReadEncrypted(); err != nil || len(encrypted.GetEncryptedKeyset()) == 0 {
		return nil, errNoKeyset
	}
	handle, err := keyset.Read(reader(), w.key)
	if err != nil {
		return nil, fault.Transient(fault.KeyUnavailable, fmt.Errorf("unwrap MAILYARD_KEYSET with MAILYARD_KMS_KEY; see that this is the key it was wrapped with and that this service account has roles/cloudkms.cryptoKeyDecrypter on it: %w", err))
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("the keyset of MAILYARD_KEYSET cannot encrypt: %w", err)
	}
	return &Keyset{primitive}, nil
}
