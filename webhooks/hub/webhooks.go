// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/webhooks/validation"
)

const (
	// webhookName is the webhook's name in metrics.
	webhookName   = "hub-trainjob"
	validatorPath = "/validate-trainyard-hub-trainjob"

	ruleHub = "Hub"

	// answerLimit is the time for an answer, below the webhook's own timeout in config/webhook-hub. What was found by then
	// counts, and a warning says what was not checked. After the webhook's timeout the API server would say nothing.
	answerLimit = 3 * time.Second
)

// Options configures the webhooks of a hub. All fields are required except Protected and Clock.
type Options struct {
	// ManagedBy is the value of spec.managedBy of the jobs that the manager owns. Other jobs are not looked at.
	ManagedBy string
	// Protected says that no job of a namespace is dispatched.
	Protected func(namespace string) bool
	// Reader reads from caches: runtimes. Live reads from the API server.
	Reader, Live client.Reader
	// DryRuns is used for dry runs only.
	DryRuns client.Client
	// Hub knows what the objects of the hub say of a job.
	Hub Hub
	// NewRuntimes is that of the trainer module.
	NewRuntimes validation.NewRuntimes
	// Clock measures how long an answer takes. nil: the real clock.
	Clock clock.PassiveClock
}

// Hub is what only the hub knows of a job.
type Hub interface {
	// Review returns what can never work, and what the job would wait for.
	Review(ctx context.Context, job *trainer.TrainJob) (field.ErrorList, []string, error)
	// PlacedOn returns the worker of a job that has a copy, or will have one, empty if there is none.
	PlacedOn(ctx context.Context, job types.NamespacedName, uid types.UID) (v1alpha1.ClusterName, error)
	// TakesUnmanaged says whether any DispatchPolicy takes jobs that name no manager.
	TakesUnmanaged(ctx context.Context) (bool, error)
	// PolicyOf returns the policy of a new job in a namespace with the labels, nil if it has none.
	PolicyOf(ctx context.Context, job *metav1.ObjectMeta, namespaceLabels map[string]string) (*v1alpha1.DispatchPolicy, error)
}

// Webhooks are the webhooks of a hub.
type Webhooks struct {
	validator *validator
	// adopter goes by labels of namespaces, and policyAdopter by policies.
	adopter, policyAdopter *adopter
}

// New returns the webhooks of a hub, which can be registered with one server after another.
func New(ctx context.Context, opts Options) (*Webhooks, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Protected == nil {
		opts.Protected = func(string) bool { return false }
	}
	checker, err := validation.New(ctx, validation.Options{
		Client: cachedClient{Client: opts.DryRuns, reader: opts.Reader}, Live: opts.Live,
		NewRuntimes: opts.NewRuntimes, Framework: validation.EmptyCluster{Client: opts.DryRuns},
	})
	if err != nil {
		return nil, err
	}
	return &Webhooks{
		validator:     &validator{Options: opts, checker: checker},
		adopter:       &adopter{managedBy: opts.ManagedBy, protected: opts.Protected, wish: wishOfNamespace(opts.Live)},
		policyAdopter: &adopter{managedBy: opts.ManagedBy, protected: opts.Protected, wish: wishOfPolicy(opts.Hub, opts.Live)},
	}, nil
}

// Register registers the webhooks with a server.
func (h *Webhooks) Register(server webhook.Server) {
	server.Register(validatorPath, &admission.Webhook{Handler: h.validator})
	server.Register(adopterPath, &admission.Webhook{Handler: h.adopter})
	server.Register(policyAdopterPath, &admission.Webhook{Handler: h.policyAdopter})
}

// validator validates the TrainJobs that a manager dispatches, as the worker's agent would validate their copies. It
// adds what only the hub knows.
//
// It fails open: what cannot be checked is a warning, and never a refusal. The worker checks the copy again.
type validator struct {
	Options
	checker *validation.Checker
}

// Handle answers one request.
func (h *validator) Handle(ctx context.Context, request admission.Request) (response admission.Response) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			ctrl.LoggerFrom(ctx).Error(nil, "Check of a TrainJob panicked", "panic", p, "stack", string(debug.Stack()))
			response = admission.Allowed("").WithWarnings("Trainyard cannot check the TrainJob: its webhook has failed")
		}
	}()
	job, old, err := decodeJobs(request)
	if err != nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("Trainyard cannot check the TrainJob: %v", err))
	}
	if ptr.Deref(job.Spec.ManagedBy, v1alpha1.ManagedByBuiltIn) != h.ManagedBy || !job.DeletionTimestamp.IsZero() {
		return admission.Allowed("")
	}
	start := h.Clock.Now()
	var found validation.Result
	if old == nil {
		found, err = h.created(ctx, job)
	} else {
		found, err = h.updated(ctx, old, job)
	}
	if err != nil {
		found.Warn("Trainyard cannot check all of the TrainJob, the worker will: %v", err)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("trainJob", klog.KObj(job))
	log.V(1).Info("Validated", "faults", len(found.Faults), "duration", h.Clock.Since(start))
	return answerOf(job, found)
}

// decodeJobs returns the job of a request, and the job before, nil for a creation.
func decodeJobs(request admission.Request) (job, old *trainer.TrainJob, err error) {
	job = &trainer.TrainJob{}
	if err := json.Unmarshal(request.Object.Raw, job); err != nil {
		return nil, nil, fmt.Errorf("decode TrainJob: %w", err)
	}
	if job.Namespace == "" {
		job.Namespace = request.Namespace
	}
	if request.Operation != admissionv1.Update {
		return job, nil, nil
	}
	old = &trainer.TrainJob{}
	if err := json.Unmarshal(request.OldObject.Raw, old); err != nil {
		return nil, nil, fmt.Errorf("decode old TrainJob: %w", err)
	}
	return job, old, nil
}

// answerOf returns a response with all warnings, and a refusal if there are faults.
func answerOf(job *trainer.TrainJob, found validation.Result) admission.Response {
	response := admission.Allowed("")
	var status apierrors.APIStatus
	if err := found.Refuse(webhookName, job.Name); errors.As(err, &status) {
		result := status.Status()
		response = admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &result}}
	}
	return response.WithWarnings(found.Warnings...)
}

func (h *validator) created(ctx context.Context, job *trainer.TrainJob) (validation.Result, error) {
	found := validation.TTLResult(job)
	local := asCopy(job)
	if kinds := h.checker.KindFaults(local); len(kinds) > 0 {
		found.Faults = append(found.Faults, kinds...)
		return found, nil
	}
	r, missing, err := h.checker.LiveRuntime(ctx, local)
	switch {
	case err != nil:
		return found, err
	case r == nil:
		found.Add(validation.WithoutRuntime(job, missing)) // A warning: the runtime may come later, and the job waits for it.
	default:
		found.Add(h.checker.Form(ctx, local, r))
		found.Add(h.checker.Surprises(local, r))
		found.Add(validation.SurprisesElsewhere(r))
	}
	if r != nil && len(found.Faults) == 0 {
		found.Add(h.checker.DryRunOnHub(ctx, local, r))
	}
	known, err := h.review(ctx, job)
	found.Add(known)
	return found, err
}

// updated checks what a request changes. Everything but the suspension reaches a copy only when it is created.
func (h *validator) updated(ctx context.Context, old, job *trainer.TrainJob) (validation.Result, error) {
	found := validation.ChangedTTL(old, job)
	late, err := h.tooLate(ctx, old, job)
	found.Add(late)
	if err != nil {
		return found, err
	}
	if changed := changedAnnotations(old, job); len(changed) > 0 {
		known, err := h.review(ctx, job)
		if err != nil {
			return found, err
		}
		// A request is refused only for what it brings.
		known.Faults = keep(known.Faults, func(f validation.Fault) bool { return changed[f.Err.Field] })
		found.Add(known)
	}
	indices, changed := validation.ChangedPatches(old, job)
	if !changed || len(found.Faults) > 0 {
		return found, nil
	}
	return h.changedPatches(ctx, old, job, indices, found)
}

// changedPatches checks new and changed patches of a job without a copy.
func (h *validator) changedPatches(
	ctx context.Context, old, job *trainer.TrainJob, indices []int, found validation.Result,
) (validation.Result, error) {
	local := asCopy(job)
	r, missing, err := h.checker.LiveRuntime(ctx, local)
	if err != nil || r == nil {
		found.Add(validation.WithoutRuntime(job, missing))
		return found, err
	}
	found.Add(h.checker.ChangedForm(ctx, asCopy(old), local, indices, r))
	if len(found.Faults) == 0 {
		found.Add(h.checker.DryRunOnHub(ctx, local, r))
	}
	return found, nil
}

func (h *validator) review(ctx context.Context, job *trainer.TrainJob) (validation.Result, error) {
	faults, warnings, err := h.Hub.Review(ctx, job)
	found := validation.Result{Warnings: warnings}
	for _, f := range faults {
		found.Faults = append(found.Faults, validation.Fault{Rule: ruleHub, Err: f})
	}
	return found, err
}

// asCopy returns the job as a worker would get it: the cluster's own controller manages it there.
func asCopy(job *trainer.TrainJob) *trainer.TrainJob {
	local := job.DeepCopy()
	local.Spec.ManagedBy = ptr.To(v1alpha1.ManagedByBuiltIn)
	return local
}

// changedAnnotations returns the paths of the user's annotations under our prefix that have been set or changed.
func changedAnnotations(old, job *trainer.TrainJob) map[string]bool {
	changed := map[string]bool{}
	for _, name := range v1alpha1.UserAnnotations() {
		value, has := job.Annotations[name]
		if before, had := old.Annotations[name]; has && (!had || before != value) {
			changed[field.NewPath("metadata", "annotations").Key(name).String()] = true
		}
	}
	return changed
}

func keep(faults []validation.Fault, wanted func(validation.Fault) bool) (kept []validation.Fault) {
	for _, f := range faults {
		if wanted(f) {
			kept = append(kept, f)
		}
	}
	return kept
}

// cachedClient reads from a cache, and sends the rest to the API server.
type cachedClient struct {
	client.Client
	reader client.Reader
}

// Get reads from the cache.
func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, object, opts...)
}

// List reads from the cache.
func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}
