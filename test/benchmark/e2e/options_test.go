// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/test/check"
)

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		// want is in the error. Empty: there is none.
		want string
	}{
		"Defaults":       {reason: "Everything has a default."},
		"Baseline":       {reason: "The other systems are left out, so agents do no harm.", args: []string{"--baseline", "HEAD~1", "--agents", "1", "--replicas", "2"}},
		"BaselineSmoke":  {reason: "The smallest comparison.", args: []string{"--smoke", "--baseline", "HEAD~1", "--pairs", "1"}},
		"NoPair":         {reason: "A comparison needs a pair.", args: []string{"--pairs", "0"}, want: "--pairs is 0: must be at least 1"},
		"OtherScenario":  {reason: "It starts managers in its own way.", args: []string{"--baseline", "HEAD~1", "--scenario", "many"}, want: "--scenario many"},
		"Profile":        {reason: "Each run would replace the file.", args: []string{"--baseline", "HEAD~1", "--profile", "f"}, want: "--profile"},
		"NoManager":      {reason: "Trainyard needs one.", args: []string{"--replicas", "0"}, want: "--replicas is 0: must be at least 1"},
		"NegativeAgents": {reason: "There are none less than none.", args: []string{"--agents", "-1"}, want: "--agents is -1"},
		"AgentsOfKueue":  {reason: "The error says which systems have agents.", args: []string{"--agents", "1"}, want: "give --systems floor,trainyard"},
		"System":         {reason: "The error names the value and what is right.", args: []string{"--systems", "kueue"}, want: `"kueue" is none of floor, trainyard`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
			o.addFlags(fs)
			check.Must(t, fs.Parse(tc.args))
			err := o.complete()
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestPresentFirst: each is first as often as the other, but for one pair.
func TestPresentFirst(t *testing.T) {
	for i := range 4 {
		check.Equal(t, i == 0 || i == 2, presentFirst(i), "pair %d: the present tree is first", i)
	}
}
