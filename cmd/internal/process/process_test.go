// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
)

// TestRunEnds checks that a process ends although something in it does not.
func TestRunEnds(t *testing.T) {
	cases := map[string]struct {
		reason string
		// stops says whether a runnable stops when it is to, and filled whether the caches are filled.
		stops, filled bool
		// timeout is that of controller-runtime: negative is none.
		timeout time.Duration
		want    string // in the error; empty: none
	}{
		"Everything": {reason: "a stop in time is no error", stops: true, filled: true, timeout: time.Minute},
		"RunnableStays": {
			reason: "controller-runtime gives up", filled: true, timeout: 50 * time.Millisecond, want: "failed waiting for all runnables",
		},
		"ManagerStays": {reason: "controller-runtime does not give up, and we do", filled: true, timeout: -1, want: "has not stopped within"},
		"CachesEmpty": {
			reason: "controller-runtime waits for caches before it looks at its context", stops: true, timeout: time.Minute,
			want: "has not stopped within",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions("lease", "namespace")
			o.LeaderElect, o.HealthAddress, o.MetricsAddress = false, "0", "0"
			var options ctrl.Options
			o.Apply(&options)
			options.GracefulShutdownTimeout = &tc.timeout
			started, over, filled := make(chan struct{}), make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(over) })
			if tc.filled {
				close(filled)
			} else {
				t.Cleanup(func() { close(filled) }) // The manager would turn in a circle until the end of all tests.
			}
			options.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) {
				return caches{&informertest.FakeInformers{}, filled}, nil
			}
			mgr, err := ctrl.NewManager(&rest.Config{Host: "https://nowhere.example"}, options)
			check.Must(t, err)
			check.Must(t, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				close(started)
				if tc.stops {
					<-ctx.Done()
				} else {
					<-over
				}
				return nil
			})))

			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			patience := time.Minute
			if tc.want != "" {
				patience = time.Second
			}
			go func() { ended <- run(ctx, mgr, patience) }()
			if tc.filled {
				<-started
			}
			stop()
			select {
			case err := <-ended:
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
				}
			case <-time.After(check.Patience):
				t.Fatalf("%s: the process does not end", tc.reason)
			}
		})
	}
}

// caches are filled when a channel is closed.
type caches struct {
	*informertest.FakeInformers
	filled <-chan struct{}
}

func (c caches) WaitForCacheSync(context.Context) bool {
	<-c.filled
	return true
}

// TestEndsWithinItsGrace checks that a process says what hangs before the kubelet kills it.
func TestEndsWithinItsGrace(t *testing.T) {
	o := DefaultOptions("lease", "namespace")
	var options ctrl.Options
	o.Apply(&options)
	if limit := ptr.Deref(options.GracefulShutdownTimeout, 0); limit <= 0 || limit >= endTimeout {
		t.Errorf("runnables have %s to end, want less than %s", limit, endTimeout)
	}
	for _, program := range []string{"manager", "worker-agent"} {
		data, err := os.ReadFile(filepath.Join("../../../config", program, "deployment.yaml"))
		check.Must(t, err)
		var deployment appsv1.Deployment
		check.Must(t, yaml.UnmarshalStrict(data, &deployment))
		grace := time.Duration(ptr.Deref(deployment.Spec.Template.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
		if grace <= endTimeout {
			t.Errorf("the Deployment of %s gives its pods %s, want more than %s", program, grace, endTimeout)
		}
	}
}
