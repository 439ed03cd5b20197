// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"
	_ "time/tzdata" // time zones of CronJobs, also where the system has no database of them

	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl with a kubeconfig of a cloud
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info on /metrics
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/controller/job"
)

// parts are what this binary can be. Each reads os.Args and returns its exit code.
var parts = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
	"run":                     runCommand,
}

func runEtcd() int {
	wal.SegmentSizeBytes = 4 << 20 // The default is 64 MB for each of two files. Clusters begin with a copy of the first.
	etcdmain.Main(os.Args)
	return 0
}

func runControllerManager() int {
	// These are constants in a release; the package exports them for tests.
	job.SyncJobBatchPeriod = 100 * time.Millisecond
	job.DefaultJobApiBackOff = 100 * time.Millisecond
	job.DefaultJobPodFailureBackOff = time.Second
	return cli.Run(controllermanager.NewControllerManagerCommand())
}

func runKubectl() int {
	// As upstream's main does: -v has to count while the command is being built.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
