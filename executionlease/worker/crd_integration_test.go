// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestCRDComesLater: fencing begins when the CRD is installed. The agent works without it. This file must be the first.
func TestCRDComesLater(t *testing.T) {
	e := shared.Get(t)
	if err := e.Get(t.Context(), client.ObjectKey{Name: "any"}, &v1alpha1.ExecutionLease{}); !meta.IsNoMatchError(err) {
		t.Skip("another test has installed the CRD already")
	}
	e.startAgent(t, "early", with{trainJobs: true})
	stranger := &hub{environment: e, id: "stranger", namespace: "default"}
	stranger.word.Store(new(""))
	fenced := stranger.createCopy(t, "fenced", nil)
	held := stranger.createCopy(t, "hold", map[string]string{v1alpha1.AnnotationFailover: string(v1alpha1.FailoverHold)})
	stranger.awaitJobSet(t, held)
	e.checkEvent(t, fenced, "Held", "nothing is created for it")
	check.Must(t, e.Delete(t.Context(), fenced))
	check.Must(t, e.Delete(t.Context(), held))

	withLeases(t)
	h := e.newHub(t)
	h.awaitJobSet(t, h.createCopy(t, "job", nil))
}
