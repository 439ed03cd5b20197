// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/report"
)

// Scenarios.
const (
	burst    = "burst"
	idle     = "idle"
	live     = "live"
	finished = "finished"
	rate     = "rate"
	many     = "many"
	unequal  = "unequal"
	expiry   = "expiry"
)

type options struct {
	systems   []string
	workers   []int
	rtts      []time.Duration
	scenarios []string

	jobs, peerJobs int
	idleJobs       int
	idleRunFor     time.Duration
	finishedJobs   []int
	liveJobs       int
	perSecond      float64
	lasting        time.Duration
	ttl            time.Duration
	manyWorkers    int
	unequalJobs    int
	replicas       int
	agents         int
	// baseline is the commit to compare with, in so many pairs.
	baseline string
	pairs    int

	out   string
	smoke bool
	// garbageCollector runs Kubernetes' garbage collector on each cluster.
	garbageCollector bool
	profile          string
	profileSeconds   int
	patience         time.Duration
}

func defaultOptions() options {
	return options{
		systems: []string{report.Floor, report.Trainyard, report.Tuned, report.MultiKueue}, workers: []int{2}, rtts: []time.Duration{0},
		scenarios: []string{burst, idle}, jobs: 300, idleJobs: 30, idleRunFor: time.Second, finishedJobs: []int{1000, 10000}, liveJobs: 1000,
		perSecond: 1e6 / (24 * 3600), lasting: 15 * time.Minute, ttl: 2 * time.Minute, profileSeconds: 10, manyWorkers: 200, unequalJobs: 100, replicas: 1, pairs: 5, patience: 30 * time.Minute,
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.systems, "systems", o.systems, "What to measure: floor, trainyard, multikueue, multikueue-tuned")
	fs.IntSliceVar(&o.workers, "workers", o.workers, "Numbers of workers")
	fs.DurationSliceVar(&o.rtts, "rtt", o.rtts, "Round-trip times between the hub's side and the workers")
	fs.StringSliceVar(&o.scenarios, "scenario", o.scenarios,
		"burst: --jobs at once; idle: one after the other; and, only with the first of --workers and --rtt: live and finished: memory and restart; "+
			"rate: --rate for --rate-for; of Trainyard alone, many: --many fake workers; expiry: --rate for --rate-for, of jobs that are archived "+
			"and deleted --ttl after their end; and unequal: --unequal-jobs with each dispatcher of MultiKueue on workers with unequal nodes")
	fs.IntVar(&o.jobs, "jobs", o.jobs, "Jobs of a burst")
	fs.IntVar(&o.peerJobs, "multikueue-jobs", o.peerJobs, "Jobs of a burst for MultiKueue, where --jobs would take too long; 0: --jobs")
	fs.IntVar(&o.idleJobs, "idle-jobs", o.idleJobs, "Jobs that come one after the other")
	fs.DurationVar(&o.idleRunFor, "idle-run-for", o.idleRunFor, "How long each of them runs")
	fs.IntSliceVar(&o.finishedJobs, "finished", o.finishedJobs, "Numbers of finished jobs on the hub, rising")
	fs.IntVar(&o.liveJobs, "live", o.liveJobs, "Jobs that run at the same time, to measure their memory; a tenth of it for MultiKueue")
	fs.Float64Var(&o.perSecond, "rate", o.perSecond, "Jobs per second that go on; the default is a million a day. 0, for expiry only: as many as end")
	fs.DurationVar(&o.lasting, "rate-for", o.lasting, "How long")
	fs.DurationVar(&o.ttl, "ttl", o.ttl, "How long a finished job stays on the hub in the scenario expiry, in whole seconds; so do Events")
	fs.IntVar(&o.manyWorkers, "many", o.manyWorkers, "Fake workers of the scenario many")
	fs.IntVar(&o.unequalJobs, "unequal-jobs", o.unequalJobs, "Jobs of the scenario unequal; its workers have room for 100")
	fs.IntVar(&o.replicas, "replicas", o.replicas, "Managers of Trainyard on the hub. Of several, elected by a Lease, one leads. 1: without leader election")
	fs.IntVar(&o.agents, "agents", o.agents, "Worker-agents on each worker of floor and trainyard: with their leases, webhooks and JobSets. "+
		"0: none, and the benchmark ends the TrainJobs. With --garbage-collector, or the manager has to delete the JobSets")
	fs.StringVar(&o.baseline, "baseline", o.baseline, "`commit` to compare the present tree with: its manager and worker-agent are built below _output/commits, "+
		"and measured in turn with those of bin/, without other systems. Scenarios: burst, idle, live, finished, rate")
	fs.IntVar(&o.pairs, "pairs", o.pairs, "How often --baseline measures both. Which of them is first alternates")
	fs.StringVar(&o.out, "out", o.out, "Folder for results.json, results.md and drawings. What is there already is completed. "+
		"With --baseline: its folder baseline, which is written anew. Empty: only print")
	fs.BoolVar(&o.garbageCollector, "garbage-collector", o.garbageCollector,
		"Run Kubernetes' garbage collector on every cluster: it deletes what jobs own, and makes requests of its own")
	fs.BoolVar(&o.smoke, "smoke", o.smoke, "Measure the floor and Trainyard for seconds, and check the requests per job, "+
		"without --agents and --baseline; times are not looked at")
	fs.StringVar(&o.profile, "profile", o.profile, "Write a CPU profile of the manager, from the start of the burst on, to this file and the system's name")
	fs.IntVar(&o.profileSeconds, "profile-seconds", o.profileSeconds, "How long the profile is")
	fs.DurationVar(&o.patience, "patience", o.patience, "How long one system may take on one fleet")
}

func (o *options) complete() error {
	if o.smoke {
		o.systems, o.workers, o.rtts, o.scenarios = []string{report.Floor, report.Trainyard}, []int{2}, []time.Duration{0}, []string{burst}
		o.jobs = 20
	}
	if o.baseline != "" {
		o.systems = []string{report.Trainyard}
	}
	for _, list := range []struct{ what, given, known []string }{
		{[]string{"--systems"}, o.systems, []string{report.Floor, report.Trainyard, report.MultiKueue, report.Tuned}},
		{[]string{"--scenario"}, o.scenarios, []string{burst, idle, live, finished, rate, many, unequal, expiry}},
	} {
		for _, name := range list.given {
			if !slices.Contains(list.known, name) {
				return fmt.Errorf("%s: %q is none of %s", list.what[0], name, strings.Join(list.known, ", "))
			}
		}
	}
	if len(o.workers) == 0 || len(o.rtts) == 0 || slices.Min(o.workers) < 1 || !slices.IsSorted(o.finishedJobs) {
		return fmt.Errorf("--workers and --rtt need values, workers are at least 1, and --finished rises")
	}
	if o.replicas < 1 {
		return fmt.Errorf("--replicas is %d: must be at least 1", o.replicas)
	}
	if o.agents < 0 {
		return fmt.Errorf("--agents is %d: must not be negative", o.agents)
	}
	if o.agents > 0 && slices.ContainsFunc(o.systems, isMultiKueue) {
		return fmt.Errorf("--agents is %d: MultiKueue is measured without agents; give --systems floor,trainyard", o.agents)
	}
	if o.agents > 0 || o.replicas > 1 || o.baseline != "" {
		for _, name := range o.scenarios {
			if slices.Contains([]string{many, unequal, expiry}, name) {
				return fmt.Errorf("--scenario %s has one manager of the present tree, and no agents: leave out --replicas, --agents and --baseline", name)
			}
		}
	}
	if o.pairs < 1 {
		return fmt.Errorf("--pairs is %d: must be at least 1", o.pairs)
	}
	if o.baseline != "" && o.profile != "" {
		return fmt.Errorf("--profile is of one run: leave it out with --baseline")
	}
	if slices.Contains(o.scenarios, expiry) && (o.ttl < time.Second || o.ttl%time.Second != 0) {
		return fmt.Errorf("--ttl is %s: must be whole seconds, at least one", o.ttl)
	}
	return nil
}

func isMultiKueue(system string) bool { return strings.HasPrefix(system, report.MultiKueue) }

// jobsOf a burst for a system.
func (o *options) jobsOf(system string) int {
	if isMultiKueue(system) && o.peerJobs > 0 {
		return o.peerJobs
	}
	return o.jobs
}

// liveOf is how many live jobs a system gets.
func (o *options) liveOf(system string) int {
	if isMultiKueue(system) {
		return max(o.liveJobs/10, 1)
	}
	return o.liveJobs
}
