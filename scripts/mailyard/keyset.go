package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func keysetCommand(t *tool) *cobra.Command {
	return group("keyset", "Make the keyset that encrypts credentials", &cobra.Command{
		Use:   "new",
		Short: "Print a new keyset, wrapped by MAILYARD_KMS_KEY, for MAILYARD_KEYSET",
		Long: "The keyset never leaves this program unwrapped. Only the key in Cloud KMS can unwrap it, so what is\n" +
			"printed is no secret by itself. Replacing the keyset makes every stored credential unreadable: all\n" +
			"mailboxes would have to be linked again.",
		Args: arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			wrapper, err := t.app.Wrapper()
			if err != nil {
				return err
			}
			wrapped, err := wrapper.New()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(t.stdout, wrapped)
			return err
		},
	})
}
