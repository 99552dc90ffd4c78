package identity_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// N24, N68, N74: secrets are compared in constant time, and every token of a delivery is looked at.
// How long a comparison takes is no behaviour that a test could rely on, so this one reads the
// source of the functions that compare secrets. It sees neither a comparison in another function
// nor one that a called function makes: a new place needs a row here.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, function, call string }{
		{"internal/identity/token.go", "TokenMatches", "subtle.ConstantTimeCompare"},
		{"internal/link/tasks/token.go", "unwrap", "hmac.Equal"},
		{"internal/httpapi/machines/fetch.go", "whoseToken", "identity.TokenMatches"},
	} {
		t.Run(c.function, func(t *testing.T) {
			t.Parallel()
			body := bodyOf(t, filepath.Join("..", "..", filepath.FromSlash(c.file)), c.function)
			calls := 0
			ast.Inspect(body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					name := nameOf(n.Fun)
					require.NotContains(t, []string{"bytes.Equal", "bytes.Compare", "slices.Equal", "strings.Compare", "reflect.DeepEqual"}, name)
					if name == c.call {
						calls++
					}
				case *ast.BinaryExpr:
					if n.Op == token.EQL || n.Op == token.NEQ {
						require.True(t, plain(n.X) || plain(n.Y), "a comparison with a variable ends at the first difference")
					}
				case *ast.RangeStmt: // which of several matched must not show
					require.False(t, leaves(n.Body), "the loop ends early")
				}
				return true
			})
			require.Equal(t, 1, calls, "%s is not called", c.call)
		})
	}
}

func bodyOf(t *testing.T, path, function string) *ast.BlockStmt {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == function {
			return f.Body
		}
	}
	require.Fail(t, "function not found", "%s in %s: if it moved, its row moves too", function, path)
	return nil
}

// nameOf is package.Function of a call, "" of any other.
func nameOf(fun ast.Expr) string {
	if s, ok := fun.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

// plain is a literal, or the format version of a task token, which is not secret.
func plain(e ast.Expr) bool {
	if i, ok := e.(*ast.Ident); ok {
		return i.Name == "tokenVersion"
	}
	_, ok := e.(*ast.BasicLit)
	return ok
}

func leaves(body *ast.BlockStmt) (early bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			early = true
		}
		return !early
	})
	return early
}
