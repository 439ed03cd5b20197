// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacityreport

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/capacity"
)

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
		informer, err := informers.GetInformer(ctx, kind.Object(), cache.BlockUntilSynced(false))
		if err != nil {
			r.log.Error(err, "Quota is not reported", "resource", kind.Resource)
			return
		}
		handled, err := informer.AddEventHandler(tally.KueueHandler())
		if err != nil {
			r.log.Error(err, "Quota is not reported", "resource", kind.Resource)
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
		if _, err := r.mapper.RESTMapping(kind.GVK.GroupKind(), kind.GVK.Version); err != nil {
			return fmt.Errorf("find %s of Kueue in version %s (v0.15 or later has it): %w", kind.GVK.Kind, kind.GVK.Version, err)
		}
		for _, verb := range []string{"list", "watch"} {
			allowed, err := r.may(ctx, verb, kind)
			if err != nil {
				return fmt.Errorf("ask whether the agent may %s %s: %w", verb, kind.Resource, err)
			}
			if !allowed {
				return fmt.Errorf("the agent may not %s %s.%s: grant it with kubectl apply -k config/worker-agent-kueue",
					verb, kind.Resource, kind.GVK.Group)
			}
		}
	}
	return nil
}

// may says whether the agent has a right to all objects of a kind.
func (r *reporter) may(ctx context.Context, verb string, kind capacity.KueueKind) (bool, error) {
	review := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"resourceAttributes": map[string]any{
		"verb": verb, "group": kind.GVK.Group, "resource": kind.Resource,
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
