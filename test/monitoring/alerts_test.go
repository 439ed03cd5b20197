// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"sigs.k8s.io/yaml"
)

// root is the root of the repository.
const root = "../.."

// rule is an alert of a PrometheusRule.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// readRules returns the alerts of processes by name: hub, worker, or * for all.
func readRules(t *testing.T, process string) map[string]rule {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/monitoring", process, "prometheus_rule.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no rules", err)
	}
	rules := map[string]rule{}
	for _, file := range files {
		var object struct {
			Spec struct {
				Groups []struct {
					Rules []rule `json:"rules"`
				} `json:"groups"`
			} `json:"spec"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &object)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range object.Spec.Groups {
			for _, r := range group.Rules {
				rules[r.Alert] = r
			}
		}
	}
	return rules
}

// cases has metrics for each alert, minute by minute: metrics for which its expression is true, and metrics for which
// it is false. A series is written as in promtool: a value, then values that grow by a step: 0+1x10.
var cases = map[string]struct{ fires, quiet []string }{
	"TrainyardNoLeader": {
		fires: []string{`leader_election_master_status{name="manager.trainyard.dev",pod="a"} 0x30`},
		quiet: []string{
			`leader_election_master_status{name="manager.trainyard.dev",pod="a"} 0x30`,
			`leader_election_master_status{name="manager.trainyard.dev",pod="b"} 1x30`,
		},
	},
	"TrainyardWorkerUnreachable": {
		fires: []string{`trainyard_worker_state{cluster="east",state="Unreachable"} 1x30`},
		quiet: []string{`trainyard_worker_state{cluster="east",state="Unreachable"} 0x30`},
	},
	"TrainyardCredentialsRefused": {
		fires: []string{`trainyard_worker_state{cluster="east",state="CredentialsInvalid"} 1x30`},
		quiet: []string{`trainyard_worker_state{cluster="east",state="CredentialsInvalid"} 0x30`},
	},
	"TrainyardCredentialsExpire": { // The time of the test is half an hour after 1970.
		fires: []string{`trainyard_worker_credentials_expiry_timestamp_seconds{cluster="east"} 9000x30`},
		quiet: []string{`trainyard_worker_credentials_expiry_timestamp_seconds{cluster="east"} 604800x30`},
	},
	"TrainyardWorkerLost": {
		fires: []string{`trainyard_worker_lost{cluster="east",state="lost"} 1x30`},
		quiet: []string{`trainyard_worker_lost{cluster="east",state="forgotten"} 1x30`},
	},
	"TrainyardFailoverPaused": {
		fires: []string{`trainyard_worker_lost{cluster="east",state="paused"} 1x30`},
		quiet: []string{`trainyard_worker_lost{cluster="east",state="lost"} 1x30`},
	},
	"TrainyardAgentSilent": {
		fires: []string{
			`trainyard_execution_lease_challenge_age_seconds{cluster="east"} 0+60x30`,
			`trainyard_worker_state{cluster="east",state="Connected"} 1x30`,
		},
		quiet: []string{ // The whole worker is away.
			`trainyard_execution_lease_challenge_age_seconds{cluster="east"} 0+60x30`,
			`trainyard_worker_state{cluster="east",state="Connected"} 0x30`,
		},
	},
	"TrainyardUnknownCopies": {
		fires: []string{`trainyard_unknown_copies{cluster="east"} 2x30`},
		quiet: []string{`trainyard_unknown_copies{cluster="east"} 0x30`},
	},
	"TrainyardRuntimesDiffer": {
		fires: []string{`trainyard_worker_runtimes{cluster="east",state="Differs"} 1x120`},
		quiet: []string{`trainyard_worker_runtimes{cluster="east",state="Differs"} 0x120`},
	},
	"TrainyardRefusedEverywhere": {
		fires: []string{
			`trainyard_attempts_ended_total{cluster="east",outcome="Rejected"} 0+1x30`,
			`trainyard_attempts_ended_total{cluster="west",outcome="Rejected"} 0+1x30`,
			`trainyard_jobs_finished_total{cluster="east",outcome="Complete"} 7x30`,
		},
		quiet: []string{ // Others run.
			`trainyard_attempts_ended_total{cluster="east",outcome="Rejected"} 0+1x30`,
			`trainyard_attempts_ended_total{cluster="west",outcome="Rejected"} 0+1x30`,
			`trainyard_jobs_finished_total{cluster="east",outcome="Complete"} 7+1x30`,
		},
	},
	"TrainyardFirstJobWaits": {
		fires: []string{`trainyard_first_waiting_seconds{policy=""} 86000+60x30`},
		quiet: []string{`trainyard_first_waiting_seconds{policy=""} 0+60x30`},
	},
	"TrainyardGPUsUnusable": {
		fires: []string{`trainyard_worker_unusable_gpus{cluster="east"} 30x30`, `trainyard_worker_gpus{cluster="east"} 64x30`},
		quiet: []string{`trainyard_worker_unusable_gpus{cluster="east"} 8x30`, `trainyard_worker_gpus{cluster="east"} 64x30`},
	},
	"TrainyardJobsUnhealthy": {
		fires: []string{`trainyard_unhealthy_jobs{cluster="east",reason="ImagePullFailed"} 4x30`, `trainyard_unhealthy_jobs{cluster="east",reason="CrashLoop"} 1x30`,
			`trainyard_jobs{cluster="east",phase="Starting"} 5x30`, `trainyard_jobs{cluster="east",phase="Running"} 3x30`,
			`trainyard_jobs{cluster="east",phase="Finished"} 500x30`},
		quiet: []string{ // Two sick jobs of two, and four of ten.
			`trainyard_unhealthy_jobs{cluster="east",reason="ImagePullFailed"} 2x30`, `trainyard_jobs{cluster="east",phase="Starting"} 2x30`,
			`trainyard_unhealthy_jobs{cluster="west",reason="CrashLoop"} 4x30`, `trainyard_jobs{cluster="west",phase="Running"} 10x30`},
	},
	"TrainyardArchiveFails": {
		fires: []string{`trainyard_archive_failures_total 0+1x60`},
		quiet: []string{`trainyard_archive_failures_total 7x60`},
	},
	"TrainyardCopiesSlow": {
		fires: []string{`trainyard_time_to_copy_seconds_bucket{le="1"} 0x30`, `trainyard_time_to_copy_seconds_bucket{le="20"} 0+5x30`,
			`trainyard_time_to_copy_seconds_bucket{le="+Inf"} 0+5x30`},
		quiet: []string{`trainyard_time_to_copy_seconds_bucket{le="1"} 0+5x30`, `trainyard_time_to_copy_seconds_bucket{le="20"} 0+5x30`,
			`trainyard_time_to_copy_seconds_bucket{le="+Inf"} 0+5x30`},
	},
	"TrainyardGatewayUnanswered": {
		fires: []string{`trainyard_gateway_unanswered_total{cluster="east"} 0+2x60`, `trainyard_worker_state{cluster="east",state="Unreachable"} 0x60`},
		quiet: []string{ // The worker is away, and another alert says so.
			`trainyard_gateway_unanswered_total{cluster="east"} 0+2x60`, `trainyard_worker_state{cluster="east",state="Unreachable"} 1x60`,
		},
	},
	"TrainyardReportsSlow": {
		fires: []string{`trainyard_time_to_report_seconds_bucket{le="1"} 0x30`, `trainyard_time_to_report_seconds_bucket{le="20"} 0+5x30`,
			`trainyard_time_to_report_seconds_bucket{le="+Inf"} 0+5x30`},
		quiet: []string{`trainyard_time_to_report_seconds_bucket{le="1"} 0+5x30`, `trainyard_time_to_report_seconds_bucket{le="20"} 0+5x30`,
			`trainyard_time_to_report_seconds_bucket{le="+Inf"} 0+5x30`},
	},
	"TrainyardFenceComing": {
		fires: []string{`trainyard_fencing_lease_remaining_seconds{hub="h",pod="a"} 2000-60x30`},
		quiet: []string{ // The leader hears of the hub.
			`trainyard_fencing_lease_remaining_seconds{hub="h",pod="a"} 595x30`,
			`trainyard_fencing_lease_remaining_seconds{hub="h",pod="b"} 2000-60x30`,
		},
	},
	"TrainyardCopiesFenced": {
		fires: []string{`trainyard_fencing_copies_stopped_total{hub="h",action="Suspend",reason="Silence"} 0+1x30`},
		quiet: []string{`trainyard_fencing_copies_stopped_total{hub="h",action="Delete",reason="OldAttempt"} 0+1x30`},
	},
	"TrainyardChallengesFail": {
		fires: []string{`trainyard_fencing_challenges_failed_total{hub="h"} 0+6x30`, `trainyard_fencing_challenges_written_total{hub="h"} 9x30`},
		quiet: []string{`trainyard_fencing_challenges_failed_total{hub="h"} 0+1x30`, `trainyard_fencing_challenges_written_total{hub="h"} 9+6x30`},
	},
}

// TestAlerts checks that each alert fires for its metrics, and not for others.
func TestAlerts(t *testing.T) {
	rules := readRules(t, "*")
	for _, alert := range slices.Sorted(maps.Keys(cases)) {
		if _, is := rules[alert]; !is {
			t.Errorf("there is no alert %s", alert)
		}
	}
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			tc, has := cases[name]
			if !has {
				t.Fatal("the alert has no case")
			}
			if n := len(evaluate(t, r.Expr, tc.fires)); n != 1 {
				t.Errorf("the expression gives %d series for\n%s", n, strings.Join(tc.fires, "\n"))
			}
			if n := len(evaluate(t, r.Expr, tc.quiet)); n != 0 {
				t.Errorf("the expression gives %d series for\n%s", n, strings.Join(tc.quiet, "\n"))
			}
		})
	}
}

// evaluate returns the series of an expression after half an hour.
func evaluate(t *testing.T, expression string, series []string) promql.Vector {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  "))
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, expression, time.Unix(0, 0).Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	vector, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return vector
}

// TestAlertsAreComplete checks what people read of an alert.
func TestAlertsAreComplete(t *testing.T) {
	runbook, err := os.ReadFile(filepath.Join(root, "docs/runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range readRules(t, "*") {
		if !strings.Contains(string(runbook), "\n## "+name+"\n") {
			t.Errorf("docs/runbook.md has no section %s", name)
		}
		if want := "docs/runbook.md#" + strings.ToLower(name); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
			t.Errorf("the runbook_url of %s is %q, and does not end in %s", name, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s has the summary %q and the severity %q", name, r.Annotations["summary"], r.Labels["severity"])
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^## (Trainyard\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		if _, has := cases[match[1]]; !has {
			t.Errorf("docs/runbook.md has a section %s, which is no alert", match[1])
		}
	}
}
