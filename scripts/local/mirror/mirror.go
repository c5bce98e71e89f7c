// Package mirror compares a simulated mailbox with its mirror.
package mirror

import (
	"fmt"
	"slices"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// Differences says, in a sentence each, where a mirror is not its mailbox.
func Differences(flagsOf func(labels []string) map[string]bool, mailbox []gmailsim.MessageState, mirrored []mail.Message) []string {
	var differences []string
	byID := map[string]mail.Message{}
	for _, m := range mirrored {
		byID[m.ID] = m
	}
	for _, there := range mailbox {
		m, ok := byID[there.ID]
		delete(byID, there.ID)
		if !ok || m.Deleted || !m.HasContent {
			differences = append(differences, fmt.Sprintf("message %s is in the mailbox, but the mirror has content %v, deleted %v", there.ID, m.HasContent, m.Deleted))
			continue
		}
		flags := flagsOf(there.Labels)
		for _, field := range sortedKeys(flags) {
			if m.Flags[field] != flags[field] {
				differences = append(differences, fmt.Sprintf("message %s: %s is %v, the mailbox says %v", there.ID, field, m.Flags[field], flags[field]))
			}
		}
	}
	for _, id := range sortedKeys(byID) {
		if m := byID[id]; !m.Deleted {
			differences = append(differences, fmt.Sprintf("message %s is mirrored, but not in the mailbox", id))
		}
	}
	return differences
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
