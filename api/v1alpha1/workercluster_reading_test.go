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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Each reason of the Ready condition says whether the worker answers, and whether the manager waits for the worker when
// it starts. A new reason needs a row here.
func TestWorkerClusterReadiness(t *testing.T) {
	type reading struct{ answers, isExpected bool }
	answers, silent := reading{answers: true, isExpected: true}, reading{}
	table := map[string]reading{
		"":                                   silent,
		v1alpha1.ReasonConnected:             answers,
		v1alpha1.ReasonCapacityReportMissing: answers,
		v1alpha1.ReasonCapacityReportStale:   answers,
		v1alpha1.ReasonQuotaMissing:          answers,
		v1alpha1.ReasonCapacityUnusable:      answers,
		v1alpha1.ReasonConnecting:            {isExpected: true},
		v1alpha1.ReasonUnreachable:           silent,
		v1alpha1.ReasonCredentialsNotFound:   silent,
		v1alpha1.ReasonCredentialsInvalid:    silent,
		v1alpha1.ReasonInvalidKubeconfig:     silent,
		v1alpha1.ReasonInsecureKubeconfig:    silent,
		v1alpha1.ReasonIdentityChanged:       silent,
		v1alpha1.ReasonDuplicate:             silent,
		v1alpha1.ReasonTrainJobAPIMissing:    silent,
		v1alpha1.ReasonJobSetAPIMissing:      answers,
	}
	for reason, want := range table {
		worker := &v1alpha1.WorkerCluster{Status: v1alpha1.WorkerClusterStatus{ClusterID: "id"}}
		if reason != "" {
			worker.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Reason: reason}}
		}
		check.Equal(t, reason, worker.Status.ReadyReason(), "ReadyReason()")
		check.Equal(t, want, (reading{worker.Status.Answers(), worker.IsExpected()}), "%q: a worker is read as", reason)
		worker.DeletionTimestamp = &metav1.Time{}
		if worker.IsExpected() {
			t.Errorf("%q: the manager waits for a worker that is being deleted", reason)
		}
		worker.DeletionTimestamp, worker.Status.ClusterID = nil, ""
		if got := worker.IsExpected(); got != want.answers {
			t.Errorf("%q: IsExpected() = %t for a worker without a cluster ID, want %t", reason, got, want.answers)
		}
	}
	for _, reason := range readyReasons(t) {
		if _, ok := table[reason]; !ok {
			t.Errorf("the table has no row for reason %q", reason)
		}
	}
}

// readyReasons returns the reasons of WorkerClusterReady that the source declares.
func readyReasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "workercluster_types.go", nil, parser.ParseComments)
	check.Must(t, err)
	var reasons []string
	for _, declared := range file.Decls {
		group, ok := declared.(*ast.GenDecl)
		if !ok || strings.TrimSpace(group.Doc.Text()) != "Reasons of WorkerClusterReady." {
			continue
		}
		for _, spec := range group.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				reason, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				check.Must(t, err)
				reasons = append(reasons, reason)
			}
		}
	}
	if len(reasons) == 0 {
		t.Fatal("workercluster_types.go declares no reasons of WorkerClusterReady")
	}
	return reasons
}
