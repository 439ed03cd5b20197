// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// The program methodsets prints the types of this module on which most methods can be called, and fails if a type has
// more than the limit. It counts the methods of *T that this module declares, whether T declares or embeds them. Types
// below test and hack do not count.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	module = "github.com/trainyard/trainyard"
	// limit is how many methods may be callable on one type. A reader knows no more by heart.
	limit = 30
	// shown is how many types are printed.
	shown = 10
)

func main() {
	log.SetFlags(0)
	packages, err := list(".")
	if err != nil {
		log.Fatalf("methodsets: %v", err)
	}
	sets, err := measure(packages)
	if err != nil {
		log.Fatalf("methodsets: %v", err)
	}
	fmt.Printf("%8s %8s  type (at most %d callable)\n", "callable", "own", limit)
	for _, set := range sets[:min(shown, len(sets))] {
		fmt.Printf("%8d %8d  %s\n", set.callable, set.own, set.name)
	}
	if sets[0].callable > limit {
		log.Fatalf("methodsets: %d methods can be called on %s, more than %d: give each step its own fields instead of embedding",
			sets[0].callable, sets[0].name, limit)
	}
}

// listed is a package as "go list" describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// list compiles the packages of the module in dir, as far as Go's cache lacks them, and describes them and what they
// import.
func list(dir string) ([]listed, error) {
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", "./...")
	command.Dir, command.Stderr = dir, os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	var packages []listed
	for decoder := json.NewDecoder(output); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, command.Wait()
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// set is how many methods of this module can be called on a type, and how many the type declares itself.
type set struct {
	name          string
	callable, own int
}

// measure returns the sets of the types of the packages, the largest first.
func measure(packages []listed) ([]set, error) {
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var sets []set
	for _, p := range packages {
		if p.DepOnly || strings.HasPrefix(p.ImportPath, module+"/test/") || strings.HasPrefix(p.ImportPath, module+"/hack/") {
			continue
		}
		checked, err := check(p, files, imports)
		if err != nil {
			return nil, err
		}
		sets = append(sets, setsOf(checked)...)
	}
	slices.SortStableFunc(sets, func(a, b set) int { return cmp.Or(b.callable-a.callable, cmp.Compare(a.name, b.name)) })
	return sets, nil
}

// check reads the types of a package from its source: what the compiler exports lacks most private types.
func check(p listed, files *token.FileSet, imports types.Importer) (*types.Package, error) {
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	config := types.Config{Importer: imports, IgnoreFuncBodies: true}
	return config.Check(p.ImportPath, files, parsed, nil)
}

func setsOf(p *types.Package) []set {
	var sets []set
	for _, name := range p.Scope().Names() {
		object, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok || object.IsAlias() {
			continue
		}
		named := object.Type().(*types.Named)
		found := set{name: strings.TrimPrefix(p.Path(), module+"/") + "." + name, own: named.NumMethods()}
		receiver := types.Type(named)
		if !types.IsInterface(named) {
			receiver = types.NewPointer(named)
		}
		methods := types.NewMethodSet(receiver)
		for i := range methods.Len() {
			if in := methods.At(i).Obj().Pkg(); in != nil && (in == p || strings.HasPrefix(in.Path(), module+"/")) {
				found.callable++
			}
		}
		sets = append(sets, found)
	}
	return sets
}
