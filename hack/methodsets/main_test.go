// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEmbeddedMethodsCount(t *testing.T) {
	const source = `package steps

type error interface { Error() string }
type base struct{}
func (base) a() {}
func (*base) b() {}
type step struct { *base; error }
func (step) c() {}
type part struct { base *base }
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "steps.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := (&types.Config{}).Check(module+"/steps", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []set{
		{name: "steps.base", callable: 2, own: 2},
		{name: "steps.error", callable: 1},
		{name: "steps.part"},
		{name: "steps.step", callable: 4, own: 1},
	}
	if diff := cmp.Diff(want, setsOf(checked), cmp.AllowUnexported(set{})); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
}
