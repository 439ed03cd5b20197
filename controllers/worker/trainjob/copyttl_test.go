// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// TestJobSetOfCopyHasNoTTL: the runtime has a TTL. Without the copy's JobSet nobody could tell the hub its end. A TTL that an
// earlier agent gave a JobSet is taken from it, also while its pods run. The JobSets of other TrainJobs keep their TTL.
func TestJobSetOfCopyHasNoTTL(t *testing.T) {
	e := lifeEnv(t)
	ns := e.namespace(t)
	copied := func(j *trainer.TrainJob) {
		j.Labels = map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: "origin"}
	}
	long := pods(clusters.RunForAnnotation, clusters.RunForever)
	live := e.createJob(t, ns, "live", clusterRuntime(ttlRuntime), long)
	e.awaitRunning(t, live, 2)
	check.Equal(t, "0", ttlOf(e, t, live), "the TTL of a TrainJob that is no copy")
	fresh := e.createJob(t, ns, "fresh", clusterRuntime(ttlRuntime), long, copied)
	e.awaitRunning(t, fresh, 2)
	check.Equal(t, "none", ttlOf(e, t, fresh), "the TTL of a copy")

	start := e.stopControllerFor(t)
	uid := e.awaitJobSet(t, live).UID
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"hub",%q:"origin"}}}`, v1alpha1.LabelHub, v1alpha1.LabelOriginUID)
	check.Must(t, e.Patch(t.Context(), live, client.RawPatch("application/merge-patch+json", label)))
	start()
	eventually(t, "the TTL to be taken from the JobSet of a copy whose pods run", func(g gomega.Gomega) {
		g.Expect(ttlOf(e, t, live)).To(gomega.Equal("none"))
	})
	check.Equal(t, uid, e.awaitJobSet(t, live).UID, "the JobSet")
}

func ttlOf(e *lifeEnvironment, t *testing.T, j *trainer.TrainJob) string {
	t.Helper()
	if ttl := e.awaitJobSet(t, j).Spec.TTLSecondsAfterFinished; ttl != nil {
		return fmt.Sprint(*ttl)
	}
	return "none"
}
