package app

import (
	"context"
	"errors"

	"mailyard.internal/mailyard/shared/keyset"
)

// Keyset returns what encrypts credentials: unwrapped once, or read from its file.
func (a *App) Keyset() (*keyset.Keyset, error) {
	return a.keyset.open(func() (*keyset.Keyset, error) {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		if err := c.CheckGmail(); err != nil {
			return nil, err
		}
		if c.KeysetFile != "" {
			return keyset.FromFile(c.KeysetFile)
		}
		wrapper, err := a.Wrapper()
		if err != nil {
			return nil, err
		}
		return wrapper.Unwrap(c.Keyset)
	})
}

// Wrapper returns what wraps keysets with the configured key of Cloud KMS.
func (a *App) Wrapper() (*keyset.Wrapper, error) {
	c, err := a.config()
	if err := errors.Join(err, c.CheckKMS()); err != nil {
		return nil, err
	}
	return a.wrapper.open(func() (*keyset.Wrapper, error) {
		return keyset.CloudKMS(context.Background(), c.KMSKey)
	})
}
