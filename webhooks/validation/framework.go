// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

const (
	ruleReservedEnv = "ReservedEnv"
	ruleInitializer = "Initializer"
	ruleFramework   = "RuntimeFramework"
	rulePanic       = "RuntimeFrameworkPanic"
)

type runtimeKey struct{}

// onPaper is the client of the webhook's own runtime framework. It reads through the given client and writes nothing.
// For the framework, the request's runtime is the Runtime in the context, and the TrainJob has no snapshot and no
// JobSet. So the framework always builds from this TrainJob and this runtime.
type onPaper struct{ client.Client }

func newOnPaper(c client.Client) client.Client {
	return onPaper{client.NewDryRunClient(c)}
}

// Get returns the Runtime of the context, no snapshot and no JobSet. It reads other objects through the client.
func (p onPaper) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	r, ok := ctx.Value(runtimeKey{}).(*Runtime)
	if !ok {
		return p.Client.Get(ctx, key, object, opts...)
	}
	switch o := object.(type) {
	case *trainer.TrainingRuntime:
		if counts, ok := r.object.(*trainer.TrainingRuntime); ok {
			counts.DeepCopyInto(o)
			return nil
		}
	case *trainer.ClusterTrainingRuntime:
		if counts, ok := r.object.(*trainer.ClusterTrainingRuntime); ok {
			counts.DeepCopyInto(o)
			return nil
		}
	case *jobsetv1alpha2.JobSet:
		return apierrors.NewNotFound(jobsetv1alpha2.Resource("jobsets"), key.Name)
	case *schedulingv1.PriorityClass:
		// The framework reads the class for Volcano. The dry run of a pod checks it for all jobs, and needs no right.
		return nil
	case *corev1.ConfigMap:
		if strings.HasSuffix(key.Name, trainjobs.SnapshotName("")) {
			return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
		}
	}
	return p.Client.Get(ctx, key, object, opts...)
}

// Apply does nothing. The framework writes snapshots with it.
func (onPaper) Apply(context.Context, apiruntime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// EmptyCluster has no objects. The runtime framework looks for earlier objects of the job. There are none on the hub, so
// the manager needs no right to read Secrets or ConfigMaps of users.
type EmptyCluster struct{ client.Client }

// Get finds nothing.
func (EmptyCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List finds nothing.
func (EmptyCluster) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// noIndexes is for a framework that only builds. Only a controller needs indexes.
type noIndexes struct{}

// IndexField does nothing.
func (noIndexes) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// opinion returns the faults that the framework's own validation finds in a TrainJob and a runtime. The framework gets
// no old TrainJob: trainjob.go of webhooks/worker decides what an update may change.
func (c *Checker) opinion(
	ctx context.Context, job *trainer.TrainJob, r *Runtime,
) (warnings admission.Warnings, faults []Fault) {
	defer func() {
		if p := recover(); p != nil {
			faults = []Fault{panicked(ctx, p, job, r)}
		}
	}()
	ctx = context.WithValue(ctx, runtimeKey{}, r)
	warnings, errs := c.runtimes[runtimeKind(job)].ValidateObjects(ctx, nil, job.DeepCopy())
	for _, err := range errs {
		faults = append(faults, translated(err, job, r))
	}
	return warnings, faults
}

// panicked returns a fault that says what may be missing: the framework dereferences optional fields without a check.
func panicked(ctx context.Context, p any, job *trainer.TrainJob, r *Runtime) Fault {
	ctrl.LoggerFrom(ctx).Error(nil, "Runtime framework panicked", "panic", p, "stack", string(debug.Stack()))
	detail := fmt.Sprintf("the runtime framework cannot work with this TrainJob and %s: %v", r, p)
	if policy := r.spec.MLPolicy; policy != nil && policy.Flux != nil && (job.Spec.Trainer == nil || job.Spec.Trainer.NumNodes == nil) {
		return Fault{Rule: rulePanic, Err: field.Required(field.NewPath("spec", "trainer", "numNodes"),
			fmt.Sprintf("the flux policy of %s needs it", r))}
	}
	return Fault{Rule: rulePanic, Err: invalid(runtimeRefPath.Child("name"), detail+"; check whether a field is "+
		"missing in one of them")}
}

// invalid returns a fault without the value, which would not help the user.
func invalid(path *field.Path, detail string) *field.Error {
	return field.Invalid(path, field.OmitValueType{}, detail)
}

// translated corrects the path of a framework's fault and removes values that are whole lists. The framework names
// fields that TrainJobs do not have, and blames runtimeRef for what the TrainJob asks of the runtime.
func translated(err *field.Error, job *trainer.TrainJob, r *Runtime) Fault {
	better := *err
	lacks := func(path *field.Path) Fault {
		detail := fmt.Sprintf("%s %s; its replicated jobs are: %s", r, err.Detail, listed(r.replicatedJobs(), mostNames))
		return Fault{Rule: ruleInitializer, Err: invalid(path, detail)}
	}
	initializer := field.NewPath("spec", "initializer")
	switch {
	case isAt(err.Field, "spec.runtimeRef", "spec.RuntimeRef") && strings.Contains(err.Detail, constants.DatasetInitializer):
		return lacks(initializer.Child("dataset"))
	case isAt(err.Field, "spec.runtimeRef", "spec.RuntimeRef") && strings.Contains(err.Detail, constants.ModelInitializer):
		return lacks(initializer.Child("model"))
	case isAt(err.Field, "spec.runtimeRef", "spec.RuntimeRef"),
		isAt(err.Field, "spec.templateSpec.priorityClassName", "spec.trainer.initContainers"):
		better.Field, better.BadValue = runtimeRefPath.Child("name").String(), job.Spec.RuntimeRef.Name
	case strings.HasPrefix(err.Field, "spec.annotations["):
		better.Field = PatchesPath.String()
		if len(job.Spec.RuntimePatches) == 0 {
			better.Field = runtimeRefPath.Child("name").String()
		}
	case isAt(err.Field, PatchesPath.String(), "spec.trainer.env"):
		better.BadValue = field.OmitValueType{}
	}
	return Fault{Rule: ruleFramework, Err: &better}
}

func isAt(path string, fields ...string) bool {
	return slices.Contains(fields, path)
}

// envFaults returns faults for environment variables that the runtime's policy sets.
func envFaults(job *trainer.TrainJob, r *Runtime) (faults []Fault) {
	policy := r.spec.MLPolicy
	if job.Spec.Trainer == nil || policy == nil {
		return nil
	}
	for _, reserving := range []struct {
		name  string
		used  bool
		names sets.Set[string]
	}{
		{"torch", policy.Torch != nil, constants.TorchRunReservedEnvNames},
		{"mpi", policy.MPI != nil, constants.MPIReservedEnvNames},
		{"xgboost", policy.XGBoost != nil, constants.XGBoostReservedEnvNames},
	} {
		for i, env := range job.Spec.Trainer.Env {
			if reserving.used && reserving.names.Has(env.Name) {
				path := field.NewPath("spec", "trainer", "env").Index(i).Child("name")
				faults = append(faults, Fault{Rule: ruleReservedEnv, Err: field.Invalid(path, env.Name, fmt.Sprintf(
					"reserved: the %s policy of %s sets it; the policy sets: %s",
					reserving.name, r, listed(sets.List(reserving.names), mostNames)))})
			}
		}
	}
	return faults
}

// withOpinion adds the framework's faults to ours. It leaves out faults about a whole list if ours name the wrong
// element of that list.
func withOpinion(ours, theirs []Fault) []Fault {
	for _, f := range theirs {
		if !coveredBy(ours, f, PatchesPath.String()) && !coveredBy(ours, f, "spec.trainer.env") {
			ours = append(ours, f)
		}
	}
	return ours
}

func coveredBy(ours []Fault, f Fault, prefix string) bool {
	return strings.HasPrefix(f.Err.Field, prefix) &&
		slices.ContainsFunc(ours, func(o Fault) bool { return strings.HasPrefix(o.Err.Field, prefix+"[") })
}

func without(faults, known []Fault) []Fault {
	return slices.DeleteFunc(faults, func(f Fault) bool {
		return slices.ContainsFunc(known, func(k Fault) bool { return k.Err.Error() == f.Err.Error() })
	})
}
