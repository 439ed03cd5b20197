// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestPlacedReasons checks that each reason of the condition Placed has one row, and that nothing else has one.
func TestPlacedReasons(t *testing.T) {
	rows := map[string]int{}
	for _, row := range v1alpha1.PlacedReasons() {
		rows[row.Reason]++
	}
	for _, reason := range constantsOf(t, "dispatch_placed.go", "Reasons of DispatchPlaced") {
		if rows[reason] != 1 {
			t.Errorf("%d rows have the reason %s", rows[reason], reason)
		}
		delete(rows, reason)
	}
	for reason := range rows {
		t.Errorf("a row has %q, which is no reason of DispatchPlaced", reason)
	}
}

// TestReasonKindOf checks what follows from one reason of each kind.
func TestReasonKindOf(t *testing.T) {
	type consequences struct{ forRoom, offList, listed, holdsBack, workers, repair bool }
	for reason, want := range map[string]consequences{
		"":                                 {forRoom: true, listed: true, workers: true},
		"OfALaterManager":                  {forRoom: true, listed: true, workers: true},
		v1alpha1.ReasonPlaced:              {listed: true, workers: true},
		v1alpha1.ReasonNoWorkers:           {forRoom: true, listed: true, workers: true},
		v1alpha1.ReasonNoFit:               {forRoom: true, listed: true, workers: true, holdsBack: true},
		v1alpha1.ReasonQueued:              {forRoom: true, listed: true, holdsBack: true},
		v1alpha1.ReasonNoPolicy:            {listed: true, workers: true},
		v1alpha1.ReasonInvalidPin:          {listed: true, workers: true, repair: true},
		v1alpha1.ReasonWaitingForWorkload:  {offList: true, listed: true, workers: true},
		v1alpha1.ReasonSuspended:           {offList: true, workers: true},
		v1alpha1.ReasonManagedByMultiKueue: {offList: true, workers: true, repair: true},
	} {
		kind := v1alpha1.ReasonKindOf(reason)
		got := consequences{kind.IsForRoom(), kind.KeepsOffList(), kind.IsListed(), kind.HoldsBack(), kind.ShowsWorkers(), kind.NeedsRepair()}
		check.Equal(t, want, got, "%q is of kind %s", reason, kind)
	}
}

// constantsOf returns the values of the constants of a file in the block whose comment begins with some words.
func constantsOf(t *testing.T, path, words string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	check.Must(t, err)
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(block.Doc.Text(), words) {
			continue
		}
		for _, spec := range block.Specs {
			value, err := strconv.Unquote(spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			check.Must(t, err)
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no block of constants with the comment %q", path, words)
	}
	return values
}
