// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestObstacleOf checks what each reason of the condition Placed means.
func TestObstacleOf(t *testing.T) {
	for reason, want := range map[string]struct {
		obstacle Obstacle
		forRoom  bool
		gate     bool
	}{
		"":                                     {obstacle: NoWorker, forRoom: true},
		"OfALaterManager":                      {obstacle: NoWorker, forRoom: true},
		v1alpha1.ReasonPlaced:                  {obstacle: NoObstacle},
		v1alpha1.ReasonNoWorkers:               {obstacle: NoWorker, forRoom: true},
		v1alpha1.ReasonNameConflict:            {obstacle: NoWorker, forRoom: true},
		v1alpha1.ReasonRejected:                {obstacle: NoWorker, forRoom: true},
		v1alpha1.ReasonNoFit:                   {obstacle: NoRoom, forRoom: true},
		v1alpha1.ReasonQueued:                  {obstacle: OtherJobs, forRoom: true},
		v1alpha1.ReasonReserved:                {obstacle: OtherJobs, forRoom: true},
		v1alpha1.ReasonPreempting:              {obstacle: OtherJobs, forRoom: true},
		v1alpha1.ReasonRuntimeNotFound:         {obstacle: Missing},
		v1alpha1.ReasonNoPolicy:                {obstacle: Missing},
		v1alpha1.ReasonWriteRefused:            {obstacle: Missing},
		v1alpha1.ReasonInvalidRuntime:          {obstacle: Fault},
		v1alpha1.ReasonTooLarge:                {obstacle: Fault},
		v1alpha1.ReasonPriorityClassNotFound:   {obstacle: Fault},
		v1alpha1.ReasonPriorityClassNotAllowed: {obstacle: Fault},
		v1alpha1.ReasonInvalidPolicy:           {obstacle: Fault},
		v1alpha1.ReasonInvalidPin:              {obstacle: Fault},
		v1alpha1.ReasonUnknownCopy:             {obstacle: Fault},
		v1alpha1.ReasonProtectedNamespace:      {obstacle: Fault},
		v1alpha1.ReasonAttemptsExhausted:       {obstacle: Fault},
		v1alpha1.ReasonWaitingForWorkload:      {obstacle: Admission, gate: true},
		v1alpha1.ReasonSuspended:               {obstacle: Suspension, gate: true},
		v1alpha1.ReasonManagedByMultiKueue:     {obstacle: MultiKueue, gate: true},
	} {
		got := ObstacleOf(reason)
		if got != want.obstacle {
			t.Errorf("ObstacleOf(%q) = %s, want %s", reason, got, want.obstacle)
		}
		if got.IsForRoom() != want.forRoom || got.IsGate() != want.gate {
			t.Errorf("IsForRoom() of %q is %t, want %t; IsGate() is %t, want %t", reason, got.IsForRoom(), want.forRoom, got.IsGate(), want.gate)
		}
	}
}

// TestNoReasonIsForgotten checks that each reason of the condition Placed has an obstacle, and that nothing else has one.
func TestNoReasonIsForgotten(t *testing.T) {
	reasons := reasonsOfPlaced(t)
	for reason, name := range reasons {
		if _, known := obstacles[reason]; !known {
			t.Errorf("obstacles lacks %s; CONTRIBUTING.md says what else a reason needs", name)
		}
	}
	for reason := range obstacles {
		if reasons[reason] == "" {
			t.Errorf("obstacles has %q, which is no reason of DispatchPlaced", reason)
		}
	}
}

// reasonsOfPlaced returns the reasons of the condition Placed, and the names of their constants.
func reasonsOfPlaced(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../api/v1alpha1/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no files (error: %v)", err)
	}
	reasons := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			block, ok := declaration.(*ast.GenDecl)
			if !ok || !strings.HasPrefix(block.Doc.Text(), "Reasons of DispatchPlaced") {
				continue
			}
			for _, spec := range block.Specs {
				constant := spec.(*ast.ValueSpec)
				reason, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons[reason] = constant.Names[0].Name
			}
		}
	}
	return reasons
}
