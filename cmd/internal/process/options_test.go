// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/test/check"
)

// TestProfilesStayHere checks that profiles are local, unless the address names a host.
func TestProfilesStayHere(t *testing.T) {
	cases := map[string]struct {
		reason        string
		address, want string
	}{
		"Off":     {reason: "Nobody has asked for profiles.", address: DefaultOptions("", "").PprofAddress, want: "0"},
		"NoHost":  {reason: "A port alone is not for the network.", address: ":6060", want: "127.0.0.1:6060"},
		"AnyHost": {reason: "Who names all addresses means it.", address: "0.0.0.0:6060", want: "0.0.0.0:6060"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions("", "")
			o.PprofAddress = tc.address
			var applied ctrl.Options
			o.Apply(&applied)
			check.Equal(t, tc.want, applied.PprofBindAddress, "%s", tc.reason)
		})
	}
}
