// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// CreationTimeout is how long a creation may be under way. An API server works on a request for at most a minute,
// admission webhooks included, and then answers with an error. A shorter timeout would get no answer. After this time
// no creation is carried out any more.
const CreationTimeout = 65 * time.Second

// Options are the options of a Fleet. The zero value of every field except HubID means its default.
type Options struct {
	// HubID is the value of the label trainyard.dev/hub on this hub's copies. Required.
	HubID string
	// Hub is what the hub knows of TrainJobs. Workers are compared with it. Default: they are not.
	Hub *HubAPI
	// Scheme is the scheme of the clients. Default: client-go's.
	Scheme *runtime.Scheme
	// RequestTimeout bounds reads and all requests for an ExecutionLease. Default: 10s.
	RequestTimeout time.Duration
	// CreationTimeout bounds creations. Default: the constant CreationTimeout.
	CreationTimeout time.Duration
	// ChangeTimeout bounds patches and deletions, which can be repeated without harm. It is longer than an admission
	// webhook's longest timeout, 30s: else no request would pass a webhook that hangs but may fail. Default: 35s.
	ChangeTimeout time.Duration
	// Leading says whether this process certainly leads now. While it returns false, writes to workers fail with
	// ErrNotLeading. It is called after the rate limiter and once there is a connection. Default: always true.
	Leading func() bool
	// SyncTimeout bounds the caches' lists. After it the status of a first sync says what is missing. Default: 1m.
	SyncTimeout time.Duration
	// ProbeInterval is the time between probes of a worker that answers, and the longest for others. Default: 10s.
	ProbeInterval time.Duration
	// ProbeTimeout bounds a probe. Default: 5s.
	ProbeTimeout time.Duration
	// FailureThreshold is how many probes in a row must fail before a connected worker is Unreachable. The failures must
	// last for at least FailureThreshold-1 probe intervals. Default: 3.
	FailureThreshold int
	// Workloads lets the caches hold the Workloads that a MultiKueue has created on the workers. Default: they do not.
	Workloads bool
	// Rights are asked for, and the status has those that the worker refuses. Default: none.
	Rights []Right
	// QPS and Burst limit the requests to one worker, except watches and probes. Default: 200 and 400. QPS < 0: no limit.
	QPS   float32
	Burst int
	// Clock stamps statuses and paces probes. Default: the real one.
	Clock clock.Clock
	// Logger gets changes at V(0) and decisions at V(1). Default: none.
	Logger logr.Logger
}

// complete checks the options and fills in defaults.
func (o Options) complete() (Options, error) {
	if o.HubID == "" {
		return o, errors.New("HubID is required")
	}
	if faults := validation.IsValidLabelValue(o.HubID); len(faults) > 0 {
		return o, fmt.Errorf("HubID %q is no label value: %s", o.HubID, strings.Join(faults, "; "))
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.RequestTimeout, 10 * time.Second},
		{&o.CreationTimeout, CreationTimeout},
		{&o.ChangeTimeout, 35 * time.Second},
		{&o.SyncTimeout, time.Minute},
		{&o.ProbeInterval, 10 * time.Second},
		{&o.ProbeTimeout, 5 * time.Second},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("a duration of %s is negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	if o.Leading == nil {
		o.Leading = func() bool { return true }
	}
	if o.FailureThreshold <= 0 {
		o.FailureThreshold = 3
	}
	if o.QPS == 0 {
		o.QPS, o.Burst = 200, max(o.Burst, 400)
	}
	if o.Burst <= 0 {
		o.Burst = max(1, int(2*o.QPS))
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	return o, nil
}
