package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// declared is what a folder of Go files exports.
type declared struct {
	types   map[string]ast.Expr
	aliases map[string]bool       // type X = fleet.X
	seen    map[string][]ast.Node // by type: its exported fields and methods; "" has the functions
}

func parse(t *testing.T, folder string) declared {
	t.Helper()
	d := declared{map[string]ast.Expr{}, map[string]bool{}, map[string][]ast.Node{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, of := range f.Decls {
			d.add(of)
		}
	}
	return d
}

func (d declared) add(of ast.Decl) {
	switch of := of.(type) {
	case *ast.FuncDecl:
		name := ""
		if of.Recv != nil {
			recv := of.Recv.List[0].Type
			if star, ok := recv.(*ast.StarExpr); ok {
				recv = star.X
			}
			if id, ok := recv.(*ast.Ident); ok {
				name = id.Name
			}
		}
		if of.Name.IsExported() && (of.Recv == nil || ast.IsExported(name)) {
			d.seen[name] = append(d.seen[name], of.Type)
		}
	case *ast.GenDecl:
		for _, spec := range of.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				d.types[spec.Name.Name], d.aliases[spec.Name.Name] = spec.Type, spec.Assign.IsValid()
				if spec.Name.IsExported() && !spec.Assign.IsValid() {
					d.seen[spec.Name.Name] = append(d.seen[spec.Name.Name], spec.Type)
				}
			case *ast.ValueSpec:
				if spec.Type != nil && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
					d.seen[""] = append(d.seen[""], spec.Type)
				}
			}
		}
	}
}

// reached calls f with each type that a signature, or the exported fields of a type, names.
func reached(of ast.Node, f func(pkg, name string)) {
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
					reached(field.Type, f)
				}
			}
			return false
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok {
				f(id.Name, n.Sel.Name)
			}
			return false
		case *ast.Ident:
			if n.IsExported() {
				f("", n.Name)
			}
		}
		return true
	})
}

// Whoever imports the contract can name each type that it shows: one of another package of ours is shown by an alias.
func TestContractShowsNoInternalType(t *testing.T) {
	t.Parallel()
	contract, fleet := parse(t, "."), parse(t, filepath.Join("..", "internal", "fleet"))
	for of, nodes := range contract.seen {
		for _, n := range nodes {
			reached(n, func(pkg, name string) {
				require.NotContains(t, []string{"fleet", "decide", "hint", "pause"}, pkg, "%s shows %s.%s: give it an alias", of, pkg, name)
			})
		}
	}
	aliases := 0
	for name, alias := range contract.aliases {
		if !alias {
			continue
		}
		aliases++
		require.Contains(t, fleet.types, name)
		for _, n := range append([]ast.Node{fleet.types[name]}, fleet.seen[name]...) {
			reached(n, func(pkg, other string) {
				if _, ours := fleet.types[other]; pkg == "" && ours {
					require.True(t, contract.aliases[other], "%s shows fleet.%s: give it an alias", name, other)
				}
			})
		}
	}
	require.Greater(t, aliases, 40)
}

// Another module imports the contract with nothing but the standard library.
func TestContractNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("..", "examples", "client")
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	run("build", "-o", filepath.Join(t.TempDir(), "client"), ".")
	of := strings.Fields(run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "."))
	slices.Sort(of)
	const ours = "github.com/holdfast-io/holdfast/"
	require.Equal(t, []string{"example.com/client", ours + "api", ours + "internal/certs/hint", ours + "internal/decide", ours + "internal/fleet", ours + "internal/pause"}, of)
}
