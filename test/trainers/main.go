// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

func main() {
	ctx := ctrl.SetupSignalHandler()
	if len(os.Args) < 2 {
		fail(fmt.Errorf("want a first argument: objects or manager"))
	}
	part := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	var m manager
	flag.StringVar(&m.certs, "certs", "", "directory with tls.crt and tls.key of the webhooks; without it there are none")
	flag.StringVar(&m.host, "host", "", "address of the webhooks")
	flag.IntVar(&m.port, "port", 0, "port of the webhooks")
	flag.Parse()
	switch part {
	case "objects":
		fail(answerAll(ctx, os.Stdin, os.Stdout))
	case "manager":
		fail(m.run(ctx))
	default:
		fail(fmt.Errorf("part %q is neither objects nor manager", part))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newScheme has the kinds that the Kubeflow Trainer reads and writes.
func newScheme() (*apiruntime.Scheme, error) {
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{
		clientgoscheme.AddToScheme, trainer.AddToScheme, jobsetv1alpha2.AddToScheme, schedulerpluginsv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}
