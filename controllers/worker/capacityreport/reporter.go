// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacityreport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

const (
	fieldOwner   = client.FieldOwner("trainyard-capacity-report")
	writeTimeout = 10 * time.Second
)

var kind = v1alpha1.GroupVersion.WithKind("CapacityReport")

// Options configures a reporter.
type Options struct {
	// Clock paces writes and stamps reports. nil: the real clock.
	Clock clock.Clock
	// Interval is the shortest time between two writes. 0: 1 s.
	Interval time.Duration
	// Quota: the report has the quota of the cluster's Kueue too. Until Kueue is installed and its objects may be read,
	// the report has none.
	Quota bool
	// Limit is the largest size of a report in bytes of JSON. 0: capacity.ReportLimit.
	Limit int
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if o.Limit == 0 {
		o.Limit = capacity.ReportLimit
	}
}

// Add adds a reporter to a manager. The reporter works while this process leads.
func Add(mgr ctrl.Manager, opts Options) error {
	opts.setDefaults()
	err := mgr.Add(&reporter{
		Options: opts, config: mgr.GetConfig(), http: mgr.GetHTTPClient(), client: mgr.GetClient(), mapper: mgr.GetRESTMapper(),
		log: mgr.GetLogger().WithName("capacityreport"), changed: make(chan struct{}, 1),
	})
	if err != nil {
		return fmt.Errorf("add capacity reporter: %w", err)
	}
	return nil
}

// reporter writes the report. Only its goroutine uses its fields, except changed.
type reporter struct {
	Options
	config *rest.Config
	http   *http.Client
	client client.Client
	mapper meta.RESTMapper
	log    logr.Logger
	// changed has one element if there may be something to write.
	changed chan struct{}

	// written is the last written report without its time. nil: none, or unknown. writtenAt is when it was written.
	written   *v1alpha1.CapacityReport
	writtenAt time.Time
	// failures counts the failed writes since the last successful write. logged is the last logged failure.
	failures int
	logged   string
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *reporter) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when ctx ends.
func (r *reporter) Start(ctx context.Context) error {
	if !r.awaitAPI(ctx) {
		return nil
	}
	tally := capacity.NewTally()
	if r.Quota {
		tally.CountQuota()
	}
	defer tally.Subscribe(r.poke)()
	informers, err := r.newCache()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- informers.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			r.log.Error(err, "Caches of nodes and pods have ended")
		}
	}()
	if counted, err := r.count(ctx, informers, tally); err != nil || !counted {
		return err
	}
	if r.Quota {
		counting := make(chan struct{})
		defer func() { cancel(); <-counting }()
		go func() { defer close(counting); r.countQuota(ctx, informers, tally) }()
	}
	r.log.Info("Reporting capacity", "nodes", len(tally.Snapshot().Nodes))
	for ctx.Err() == nil {
		r.report(ctx, tally.Snapshot())
		r.wait(ctx)
	}
	return nil
}

// awaitAPI waits until the CRD is installed. It returns false if the context ends before that.
func (r *reporter) awaitAPI(ctx context.Context) bool {
	for {
		_, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			return true
		}
		if meta.IsNoMatchError(err) {
			err = errors.New("the CRD is not installed (kubectl apply --server-side -k config/crd/worker); until it is there is nothing to do")
		}
		r.complain(err)
		if !r.pause(ctx, capacity.RenewInterval) {
			return false
		}
	}
}

func (r *reporter) newCache() (cache.Cache, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), resourceapi.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	objects := map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: capacity.StripNode},
		&corev1.Pod{}:  {Transform: capacity.StripPod},
	}
	if r.Quota {
		for _, kind := range capacity.KueueKinds {
			objects[kind.New()] = cache.ByObject{Transform: kueues.Strip}
		}
	}
	informers, err := cache.New(r.config, cache.Options{
		HTTPClient: r.http, Scheme: scheme, Mapper: r.mapper, SyncPeriod: new(365 * 24 * time.Hour), ByObject: objects,
		// A cluster need not serve them, so they cannot be among the objects.
		DefaultTransform: capacity.StripDevices,
		DefaultWatchErrorHandler: func(_ context.Context, reflector *toolscache.Reflector, err error) {
			r.log.V(1).Info("Reflector has to start again", "type", reflector.TypeDescription(), "reason", err.Error())
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make caches of nodes and pods: %w", err)
	}
	return informers, nil
}

// source is a kind that is counted.
type source struct {
	object  client.Object
	handler toolscache.ResourceEventHandler
}

// count connects the tally to the caches. It returns true once everything is counted, false if the context ends first.
func (r *reporter) count(ctx context.Context, informers cache.Cache, tally *capacity.Tally) (bool, error) {
	var counted []toolscache.InformerSynced
	sources := []source{{&corev1.Node{}, tally.NodeHandler()}, {&corev1.Pod{}, tally.PodHandler()}}
	if err := r.devicesReadable(ctx, tally); err != nil {
		r.log.Info("Devices of Dynamic Resource Allocation are not reported", "reason", err.Error())
	} else {
		for _, kind := range capacity.DeviceKinds {
			sources = append(sources, source{kind.New(), tally.DeviceHandler()})
		}
		version, err := r.taintRules(ctx)
		switch {
		case err != nil:
			r.log.Info("DeviceTaintRules are not applied to the devices that are reported", "reason", err.Error())
			tally.SetUnread(capacity.TaintRules, fmt.Sprintf("devices count also where a DeviceTaintRule keeps jobs off: %v", err))
		case version != "":
			sources = append(sources, source{capacity.NewTaintRule(version), tally.DeviceHandler()})
		}
		if err := r.readable(ctx, capacity.TemplateKind); err != nil {
			r.log.Info("Claims count with the number of devices that they need at the least", "reason", err.Error())
			tally.SetUnread(capacity.TemplateKind.Resource, fmt.Sprintf("claims count with the number of devices that they need at the least: %v", err))
		} else {
			sources = append(sources, source{capacity.TemplateKind.New(), tally.DeviceHandler()})
		}
	}
	for _, source := range sources {
		informer, err := informers.GetInformer(ctx, source.object, cache.BlockUntilSynced(false))
		if err != nil {
			return false, fmt.Errorf("watch %T: %w", source.object, err)
		}
		handled, err := informer.AddEventHandler(source.handler)
		if err != nil {
			return false, fmt.Errorf("watch %T: %w", source.object, err)
		}
		counted = append(counted, handled.HasSynced)
	}
	return toolscache.WaitForCacheSync(ctx.Done(), counted...), nil
}

// report writes a snapshot, unless the same report is written already and needs no renewal.
func (r *reporter) report(ctx context.Context, snapshot *capacity.Snapshot) {
	report, err := capacity.NewReport(snapshot, r.Limit)
	if err == nil && r.written != nil && r.renewal() > 0 && equality.Semantic.DeepEqual(report, r.written) {
		return
	}
	if err == nil {
		r.writtenAt = r.Clock.Now()
		err = r.write(ctx, report)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.failures++
		r.written = nil
		r.complain(err)
	default:
		if len(report.Abridged) > 0 && (r.written == nil || !slices.Equal(r.written.Abridged, report.Abridged)) {
			r.log.Info("Capacity report would be too large and is abridged", "abridged", report.Abridged)
		}
		r.written, r.failures, r.logged = report, 0, ""
	}
}

// renewal is the time until the report must be written even without a change.
func (r *reporter) renewal() time.Duration {
	return capacity.RenewInterval - r.Clock.Since(r.writtenAt)
}

func (r *reporter) write(ctx context.Context, report *v1alpha1.CapacityReport) error {
	stamped := *report
	stamped.TypeMeta = metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
	stamped.Name = v1alpha1.CapacityReportName
	stamped.RenewTime = metav1.NewMicroTime(r.writtenAt)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&stamped)
	if err != nil {
		return fmt.Errorf("encode CapacityReport: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	object := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := r.client.Apply(ctx, object, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply CapacityReport %q: %w", v1alpha1.CapacityReportName, err)
	}
	return nil
}

// wait waits for something to write: a change or the renewal. It first waits for Interval, to gather changes.
func (r *reporter) wait(ctx context.Context) {
	if r.failures > 0 {
		r.pause(ctx, min(r.Interval<<min(r.failures, 10), capacity.RenewInterval))
		return
	}
	if !r.pause(ctx, r.Interval) {
		return
	}
	renewal := r.Clock.NewTimer(r.renewal())
	defer renewal.Stop()
	select {
	case <-r.changed:
	case <-renewal.C():
	case <-ctx.Done():
	}
}

// pause waits for d. It returns false if the context has ended.
func (r *reporter) pause(ctx context.Context, d time.Duration) bool {
	timer := r.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// complain logs an error, unless it was the last logged error.
func (r *reporter) complain(err error) {
	if text := err.Error(); text != r.logged {
		r.logged = text
		r.log.Info("Capacity is not reported", "reason", text)
	}
}

// poke notes that there may be something to write. It never blocks.
func (r *reporter) poke() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// countQuota connects the tally to the caches of Kueue's objects, when Kueue is installed and they may be read.
func (r *reporter) countQuota(ctx context.Context, informers cache.Cache, tally *capacity.Tally) {
	for said := ""; ; {
		err := r.quotaReadable(ctx)
		if err == nil {
			break
		}
		if text := err.Error(); ctx.Err() == nil && text != said {
			said = text
			r.log.Info("Quota is not reported", "reason", text)
		}
		if !r.pause(ctx, capacity.RenewInterval) {
			return
		}
	}
	var counted []toolscache.InformerSynced
	for _, kind := range capacity.KueueKinds {
		informer, err := informers.GetInformer(ctx, kind.New(), cache.BlockUntilSynced(false))
		if err != nil {
			r.log.Error(err, "Quota is not reported", "resource", kind.Resource())
			return
		}
		handled, err := informer.AddEventHandler(tally.KueueHandler())
		if err != nil {
			r.log.Error(err, "Quota is not reported", "resource", kind.Resource())
			return
		}
		counted = append(counted, handled.HasSynced)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), counted...) {
		r.log.Info("Reporting the quota of Kueue")
		tally.QuotaListed()
	}
}

// quotaReadable says why Kueue's objects cannot be read.
func (r *reporter) quotaReadable(ctx context.Context) error {
	for _, kind := range capacity.KueueKinds {
		if _, err := r.mapper.RESTMapping(kind.GroupKind(), kueues.Version); err != nil {
			return fmt.Errorf("find %s of Kueue in version %s (v0.15 or later has it): %w", kind, kueues.Version, err)
		}
		for _, verb := range []string{"list", "watch"} {
			allowed, err := r.may(ctx, verb, kueues.Group, kind.Resource())
			if err != nil {
				return fmt.Errorf("ask whether the agent may %s %s: %w", verb, kind.Resource(), err)
			}
			if !allowed {
				return fmt.Errorf("the agent may not %s %s.%s: grant it with kubectl apply -k config/worker-agent-kueue",
					verb, kind.Resource(), kueues.Group)
			}
		}
	}
	return nil
}

// may says whether the agent has a right to all objects of a resource.
func (r *reporter) may(ctx context.Context, verb, group, resource string) (bool, error) {
	review := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"resourceAttributes": map[string]any{
		"verb": verb, "group": group, "resource": resource,
	}}}}
	review.SetAPIVersion("authorization.k8s.io/v1")
	review.SetKind("SelfSubjectAccessReview")
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := r.client.Create(ctx, review); err != nil {
		return false, err
	}
	allowed, _, err := unstructured.NestedBool(review.Object, "status", "allowed")
	return allowed, err
}
