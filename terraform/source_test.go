// Package terraform_test holds Terraform and Go together: what both name is the same.
package terraform_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// parse reads the files that a pattern names.
func parse(t *testing.T, pattern string) []*hclsyntax.Body {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no file is %s: %v", pattern, err)
	}
	var bodies []*hclsyntax.Body
	for _, name := range names {
		file, diags := hclparse.NewParser().ParseHCLFile(name)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		bodies = append(bodies, file.Body.(*hclsyntax.Body))
	}
	return bodies
}

// local reads one of Terraform's locals into a Go value. It may speak of the locals that are named beside
// it, and of nothing else.
func local(t *testing.T, name string, into any, of ...string) {
	t.Helper()
	locals := map[string]cty.Value{}
	for _, other := range append(of, name) {
		attribute := findLocal(t, other)
		value, diags := attribute.Expr.Value(&hcl.EvalContext{Variables: map[string]cty.Value{"local": cty.ObjectVal(locals)}})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		locals[other] = value
	}
	data, err := ctyjson.SimpleJSONValue{Value: locals[name]}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("local.%s: %v", name, err)
	}
}

func findLocal(t *testing.T, name string) *hclsyntax.Attribute {
	t.Helper()
	for _, body := range parse(t, "*.tf") {
		for _, block := range body.Blocks {
			if attribute := block.Body.Attributes[name]; block.Type == "locals" && attribute != nil {
				return attribute
			}
		}
	}
	t.Fatalf("there is no local.%s", name)
	return nil
}
