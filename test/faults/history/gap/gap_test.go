// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gap

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/history"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/yard"
)

// patience is for what takes a second on an idle machine.
const patience = 90 * time.Second

// hub is an API server with a recorder that can be cut off from it.
type hub struct {
	*testing.T
	cluster  *clusters.Cluster
	admin    client.Client
	link     *links.Link
	recorder *history.Recorder
}

func start(t *testing.T, apiServerArgs ...string) *hub {
	crds, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs, clusters.HubCRDs)
	check.Must(t, err)
	h := &hub{T: t}
	h.cluster, err = clusters.Start(t.Context(), clusters.Options{Name: "hub", CRDs: crds, APIServerArgs: apiServerArgs})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, h.cluster.Stop()) })
	h.admin, err = yard.NewClient(h.cluster)
	check.Must(t, err)
	server, err := url.Parse(h.cluster.Config.Host)
	check.Must(t, err)
	h.link, err = links.New("hub", server.Host, filepath.Join(h.cluster.Dir, "pki"))
	check.Must(t, err)
	t.Cleanup(h.link.Close)
	config := rest.CopyConfig(h.cluster.Config)
	config.Host = h.link.URL()
	h.recorder, err = history.Start(t.Context(), config, nil)
	check.Must(t, err)
	t.Cleanup(h.recorder.Stop)
	return h
}

// inGap does something that the recorder's watches miss: the API server has forgotten it when the recorder is back.
func (h *hub) inGap(do func()) {
	h.Helper()
	h.link.Refuse()
	do()
	check.Must(h, h.cluster.KillAPIServer())
	check.Must(h, h.cluster.StartAPIServer(h.Context()))
	check.Must(h, h.link.Heal())
}

// submitted is a new Dispatch that waits.
func (h *hub) submitted(name string) *v1alpha1.Dispatch {
	h.Helper()
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: name, UID: types.UID(name)}},
	}
	check.Must(h, h.admin.Create(h.Context(), d))
	return d
}

func (h *hub) places(d *v1alpha1.Dispatch) {
	h.Helper()
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt, d.Finalizers = "west", "west", 1, []string{v1alpha1.FinalizerCopy}
	check.Must(h, h.admin.Update(h.Context(), d))
}

func (h *hub) copies(d *v1alpha1.Dispatch) {
	h.Helper()
	d.Status.Cluster, d.Status.Attempt, d.Status.CopyUID, d.Status.Phase = d.Spec.Cluster, d.Spec.Attempt, "copy", v1alpha1.PhaseRunning
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: v1alpha1.DispatchMirrored, Status: "True", Reason: v1alpha1.ReasonCopied})
	check.Must(h, h.admin.Status().Update(h.Context(), d))
}

func (h *hub) evicts(d *v1alpha1.Dispatch) {
	h.Helper()
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended}
	check.Must(h, h.admin.Update(h.Context(), d))
}

// knows waits until the recorder knows the latest version of a Dispatch. It returns all that the recorder knows of it.
func (h *hub) knows(d *v1alpha1.Dispatch) (description string) {
	h.Helper()
	gomega.NewWithT(h).Eventually(func() string {
		description = h.recorder.Describe(d.Spec.TrainJob.UID)
		return description
	}, patience, "20ms").Should(gomega.ContainSubstring("version " + d.ResourceVersion + ":"))
	return description
}

// wrong compares what the recorder finds wrong with what it should find: a part of each text.
func (h *hub) wrong(d *v1alpha1.Dispatch, want ...string) {
	h.Helper()
	got := h.recorder.Wrong(d.Spec.TrainJob.UID)
	if !cmp.Equal(want, got, cmp.Comparer(func(a, b string) bool { return strings.Contains(a, b) || strings.Contains(b, a) })) {
		h.Errorf("found wrong with %s: %q, want %q\n%s", d.Name, got, want, h.recorder.Describe(d.Spec.TrainJob.UID))
	}
}

// A suspended job is placed, copied and evicted, and another job comes, while the recorder's watch has a gap. The
// recorder lists the versions in the gap. So it finds nothing wrong with these jobs, and it finds the wrong write in the
// gap of a third job.
func TestGapIsFilled(t *testing.T) {
	h := start(t)
	job, bad := h.submitted("job"), h.submitted("bad")
	h.knows(job)
	h.knows(bad)
	var other *v1alpha1.Dispatch
	var versions []string
	write := func(do func(*v1alpha1.Dispatch)) {
		do(job)
		versions = append(versions, job.ResourceVersion)
	}
	h.inGap(func() {
		write(h.places)
		other = h.submitted("other")
		h.places(bad)
		bad.Spec.Failover = v1alpha1.FailoverImmediate
		check.Must(t, h.admin.Update(t.Context(), bad))
		write(h.copies)
		h.places(other)
		h.copies(bad)
		write(h.evicts)
	})
	description := h.knows(job)
	for i, version := range versions {
		_, after, found := strings.Cut(description, "version "+version+":")
		if !found {
			t.Errorf("version %s (write %d in the gap) is missing, or is not in its place:\n%s", version, i, h.recorder.Describe(job.Spec.TrainJob.UID))
			break
		}
		description = after
	}
	h.wrong(job)
	h.knows(other)
	h.wrong(other)
	h.knows(bad)
	h.wrong(bad, "the decision was changed without a new attempt")
}

// What etcd has compacted cannot be listed any more: the recorder says so, and finds nothing wrong. A write after the gap
// is judged again.
func TestGapIsTold(t *testing.T) {
	h := start(t, "--etcd-compaction-interval=1s")
	job := h.submitted("job")
	h.knows(job)
	h.inGap(func() {
		h.places(job)
		h.copies(job)
		copied := job.ResourceVersion
		h.evicts(job)
		gomega.NewWithT(t).Eventually(func() error {
			var list v1alpha1.DispatchList
			return h.admin.List(t.Context(), &list, &client.ListOptions{
				Namespace: job.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, job.Name),
				Raw: &metav1.ListOptions{ResourceVersion: copied, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			})
		}, patience, "200ms").Should(gomega.Satisfy(apierrors.IsResourceExpired))
	})
	if description := h.knows(job); !strings.Contains(description, "the watch had a gap") {
		t.Errorf("the gap is not told:\n%s", description)
	}
	h.wrong(job)
	job.Spec.Failover = v1alpha1.FailoverImmediate
	check.Must(t, h.admin.Update(t.Context(), job))
	h.knows(job)
	h.wrong(job, "an eviction was replaced by another")
}
