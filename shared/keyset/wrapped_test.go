package keyset_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tink-crypto/tink-go/v2/aead"
	tinkkeyset "github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/keyset"
)

// A kms stands for a key of Cloud KMS.
type kms struct {
	tink.AEAD
	calls atomic.Int64
	down  error
}

func newKMS(t *testing.T) *kms {
	t.Helper()
	handle, err := tinkkeyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		t.Fatal(err)
	}
	key, err := aead.New(handle)
	if err != nil {
		t.Fatal(err)
	}
	return &kms{AEAD: key}
}

func (k *kms) Encrypt(plain, associated []byte) ([]byte, error) {
	k.calls.Add(1)
	if k.down != nil {
		return nil, k.down
	}
	return k.AEAD.Encrypt(plain, associated)
}

func (k *kms) Decrypt(sealed, associated []byte) ([]byte, error) {
	k.calls.Add(1)
	if k.down != nil {
		return nil, k.down
	}
	return k.AEAD.Decrypt(sealed, associated)
}

// A wrapped keyset works wherever its key can be used, and asks the key once.
func TestWrapped(t *testing.T) {
	t.Parallel()
	key := newKMS(t)
	wrapped, err := keyset.WrapperOf(key).New()
	if err != nil {
		t.Fatal(err)
	}
	key.calls.Store(0)
	one, err := keyset.WrapperOf(key).Unwrap(" " + wrapped + "\n")
	if err != nil {
		t.Fatal(err)
	}
	sealed := seal(t, one, "refresh-token", "a1")
	if n := key.calls.Load(); n != 1 {
		t.Errorf("the key was asked %d times, want once an instance", n)
	}
	two, err := keyset.WrapperOf(key).Unwrap(wrapped)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := two.Open(sealed, "a1"); err != nil || got != "refresh-token" {
		t.Errorf("another instance opened %q, %v", got, err)
	}
}

// Tink's own tool writes JSON; it may be given as it is, or in base64.
func TestWrappedInJSON(t *testing.T) {
	t.Parallel()
	key := newKMS(t)
	handle, err := tinkkeyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := handle.Write(tinkkeyset.NewJSONWriter(&text), key); err != nil {
		t.Fatal(err)
	}
	for _, wrapped := range []string{text.String(), base64.StdEncoding.EncodeToString([]byte(text.String()))} {
		if _, err := keyset.WrapperOf(key).Unwrap(wrapped); err != nil {
			t.Error(err)
		}
	}
}

func TestUnwrapRefuses(t *testing.T) {
	t.Parallel()
	key := newKMS(t)
	wrapped, err := keyset.WrapperOf(key).New()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing": "", "a word": "secret-word", "base64 of nothing useful": base64.StdEncoding.EncodeToString([]byte("secret-word")),
		"other JSON": `{"a": "secret-word"}`, "a keyset in plain text": `{"primaryKeyId":1,"key":[{"keyData":{"value":"secret-word"}}]}`,
	} {
		_, err := keyset.WrapperOf(key).Unwrap(text)
		if err == nil || !strings.Contains(err.Error(), "mailyard keyset new") || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := keyset.WrapperOf(newKMS(t)).Unwrap(wrapped); !fault.Is(err, fault.KeyUnavailable) {
		t.Errorf("another key: %v", err)
	}
	key.down = errors.New("unavailable")
	if _, err := keyset.WrapperOf(key).Unwrap(wrapped); !fault.Is(err, fault.KeyUnavailable) || fault.IsPermanent(err) {
		t.Errorf("a key that is down: %v", err)
	}
	if _, err := keyset.WrapperOf(key).New(); err == nil {
		t.Error("a keyset was made without its key")
	}
}
