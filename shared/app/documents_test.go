package app_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"
)

// documents returns the text of every document of a collection by its path, and of all that lies under
// it; those of the whole database for an empty collection.
func documents(t *testing.T, project, collection string) map[string]string {
	t.Helper()
	client, err := firestore.NewClient(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	texts := map[string]string{}
	if collection != "" {
		err = walk(t.Context(), client.Collection(collection), texts)
	} else {
		err = walkAll(t.Context(), client.Collections(t.Context()), texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func walkAll(ctx context.Context, collections *firestore.CollectionIterator, texts map[string]string) error {
	found, err := collections.GetAll()
	for _, c := range found {
		err = errors.Join(err, walk(ctx, c, texts))
	}
	return err
}

func walk(ctx context.Context, c *firestore.CollectionRef, texts map[string]string) error {
	refs := c.DocumentRefs(ctx)
	for {
		ref, err := refs.Next()
		if errors.Is(err, iterator.Done) {
			return nil
		}
		if err != nil {
			return err
		}
		path := c.Path[len("projects/"):] + "/" + ref.ID
		if snapshot, err := ref.Get(ctx); err == nil {
			texts[path] = flat(snapshot.Data())
		}
		if err := walkAll(ctx, ref.Collections(ctx), texts); err != nil {
			return err
		}
	}
}

// flat writes out a value and everything in it, bytes as the text they may be.
func flat(value any) string {
	switch v := value.(type) {
	case map[string]any:
		text := ""
		for name, item := range v {
			text += name + "=" + flat(item) + "\n"
		}
		return text
	case []any:
		text := ""
		for _, item := range v {
			text += flat(item) + "\n"
		}
		return text
	case []byte:
		return string(v)
	}
	return fmt.Sprint(value)
}
