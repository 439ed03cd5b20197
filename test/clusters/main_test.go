// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/test/check"
)

const (
	// deadline limits every wait of a test, on a machine with other work.
	deadline = 90 * time.Second
	tick     = 50 * time.Millisecond

	// helperEnv makes the test binary a program that starts a cluster in the
	// directory it names and then waits to be killed.
	helperEnv = "TRAINYARD_CLUSTERS_HELPER"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		os.Exit(helper(dir))
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// helper starts a cluster with all parts, prints the IDs of its processes and
// stays until it is killed.
func helper(dir string) int {
	o := Full("orphan", NodeShape{Count: 1})
	o.Dir = dir
	c, err := Start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var pids []string
	for _, p := range append(c.backend.(*processes).running, c.beside...) {
		pids = append(pids, fmt.Sprint(p.PID()))
	}
	fmt.Println(strings.Join(pids, " "))
	select {}
}

// full is a cluster with everything, started by the first test that wants it.
var full struct {
	sync.Once
	cluster *Cluster
	err     error
}

func sharedCluster(t *testing.T) *Cluster {
	t.Helper()
	full.Do(func() {
		started := time.Now()
		full.cluster, full.err = Start(context.Background(), Full("full", NodeShape{
			Count:      2,
			NamePrefix: "gpu",
			Capacity:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
		}))
		if full.err == nil {
			t.Logf("Cluster with everything started in %v", time.Since(started).Round(time.Millisecond))
		}
	})
	if full.err != nil {
		t.Fatal(full.err)
	}
	return full.cluster
}

func stopShared() error {
	if full.cluster == nil {
		return nil
	}
	return full.cluster.Stop()
}

// startCluster starts a cluster that ends with the test, in a directory that
// stays readable until then.
func startCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	started := time.Now()
	c, err := Start(t.Context(), o)
	check.Must(t, err)
	t.Logf("Cluster %q started in %v", c.Name, time.Since(started).Round(time.Millisecond))
	t.Cleanup(func() { check.Must(t, c.Stop()) })
	return c
}
