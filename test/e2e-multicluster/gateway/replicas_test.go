// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestFaultLeaderChanges: each replica answers, whether it leads or not, also after another one has become the leader.
func TestFaultLeaderChanges(t *testing.T) {
	address, process, err := y.Managers.StandBy(t.Context())
	check.Must(t, err)
	defer func() { check.Must(t, process.Kill()) }()
	second, err := y.UserAt("second", address, viewer.Token, team)
	check.Must(t, err)
	first := submit(t, yard.Job{Name: "before-the-change"}, east, "one")
	pod := runs(t, east, first)[0]
	for name, u := range map[string]*yard.User{"Leader": viewer, "StandBy": second} {
		r := u.Kubectl(t.Context(), "logs", pod)
		check.Equal(t, "one\n", r.Out, "%s: %s", name, r)
		r = u.Kubectl(t.Context(), "get", "pods")
		contains(t, r.Out, pod)
	}
	// The replica that stood by leads from here on, and the other one starts again.
	check.Must(t, y.Managers.Kill())
	later := submit(t, yard.Job{Name: "after-the-change"}, west, "two")
	pod = runs(t, west, later)[0]
	for name, u := range map[string]*yard.User{"Leader": second, "StandBy": viewer} {
		t.Log(name)
		eventually(t, func() bool { return u.Kubectl(t.Context(), "logs", pod).Out == "two\n" })
	}
}
