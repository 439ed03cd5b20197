// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

var podsGVR = corev1.SchemeGroupVersion.WithResource("pods")

func configOf(t *testing.T, u *yard.User) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.Kubeconfig)
	check.Must(t, err)
	return config
}

// informersOf returns an informer of the team's pods for each kind of client.
func informersOf(t *testing.T, config *rest.Config) map[string]toolscache.SharedIndexInformer {
	t.Helper()
	typed, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	untyped, err := dynamic.NewForConfig(config)
	check.Must(t, err)
	metadataOnly, err := metadata.NewForConfig(config)
	check.Must(t, err)
	return map[string]toolscache.SharedIndexInformer{
		"Typed":    informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(team)).Core().V1().Pods().Informer(),
		"Dynamic":  dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, team, nil).ForResource(podsGVR).Informer(),
		"Metadata": metadatainformer.NewFilteredSharedInformerFactory(metadataOnly, 0, team, nil).ForResource(podsGVR).Informer(),
	}
}

// TestInformers: informers of all kinds of clients sync, learn of the pods of jobs that are placed later, and of their end.
func TestInformers(t *testing.T) {
	t.Parallel()
	before := submit(t, yard.Job{Name: "informed-before"}, east, "")
	first := runs(t, east, before)[0]
	all := informersOf(t, configOf(t, viewer))
	for name, informer := range all {
		go informer.Run(t.Context().Done())
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		if !toolscache.WaitForCacheSync(within.Done(), informer.HasSynced) {
			t.Errorf("%s: the informer does not sync", name)
		}
		cancel()
		if _, has, _ := informer.GetStore().GetByKey(team + "/" + first); !has {
			t.Errorf("%s: the pod that ran before is missing: %v", name, informer.GetStore().ListKeys())
		}
	}
	later := submit(t, yard.Job{Name: "informed-later"}, west, "")
	second := runs(t, west, later)[0]
	for name, informer := range all {
		eventually(t, func() bool {
			o, has, _ := informer.GetStore().GetByKey(team + "/" + second)
			pod, typed := o.(*corev1.Pod)
			return has && (!typed || pod.Status.Phase == corev1.PodRunning)
		})
		t.Logf("%s has %v", name, informer.GetStore().ListKeys())
	}
	check.Must(t, y.Hub.Delete(t.Context(), later))
	for _, informer := range all {
		eventually(t, func() bool {
			_, has, _ := informer.GetStore().GetByKey(team + "/" + second)
			return !has
		})
	}
}

// TestWatchGoesOn: a watch that begins at the version of a list, of a bookmark or of a worker's pod misses nothing.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "resumed"}, east, "")
	pod := runs(t, east, job)[0]
	client, err := kubernetes.NewForConfig(configOf(t, viewer))
	check.Must(t, err)
	pods := client.CoreV1().Pods(team)
	options := metav1.ListOptions{LabelSelector: "jobset.sigs.k8s.io/jobset-name=resumed"}
	list, err := pods.List(t.Context(), options)
	check.Must(t, err)
	if len(list.Items) != 1 || list.Items[0].Name != pod {
		t.Fatalf("the list has %v", list.Items)
	}
	check.Must(t, y.Hub.Delete(t.Context(), job))
	options.ResourceVersion = list.ResourceVersion
	eventOf := func(options metav1.ListOptions, kind watch.EventType) watch.Event {
		within, cancel := context.WithTimeout(t.Context(), y.Timeout)
		defer cancel()
		w, err := pods.Watch(within, options)
		check.Must(t, err)
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == kind {
				return event
			}
		}
		t.Fatalf("there is no event %s", kind)
		return watch.Event{}
	}
	modified := eventOf(options, watch.Modified).Object.(*corev1.Pod)
	options.ResourceVersion = modified.ResourceVersion
	deleted := eventOf(options, watch.Deleted).Object.(*corev1.Pod)
	check.Equal(t, pod, deleted.Name, "deleted pod")
	// The version of the same pod on its worker is of nobody.
	options.ResourceVersion = "1"
	if _, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch at a version of the hub alone: %v", err)
	}
}

// TestKubectlWatch: "kubectl get -w", begun before a job is submitted, shows the pods of the job.
func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := viewer.Command(ctx, "get", "pods", "-w")
	var out lockedBuffer
	command.Stdout, command.Stderr = &out, &out
	check.Must(t, command.Start())
	defer func() { _ = command.Wait() }()
	defer cancel()
	job := submit(t, yard.Job{Name: "seen"}, west, "")
	pod := runs(t, west, job)[0]
	eventually(t, func() bool {
		return bytes.Contains(out.bytes(), []byte(pod)) && bytes.Contains(out.bytes(), []byte("Running"))
	})
	check.Must(t, y.Hub.Delete(t.Context(), job))
	eventually(t, func() bool { return bytes.Contains(out.bytes(), []byte("Terminating")) })
	if headers := bytes.Count(out.bytes(), []byte("NAME ")); headers != 1 {
		t.Errorf("there are %d headers in\n%s", headers, out.bytes())
	}
	t.Logf("kubectl get pods -w\n%s", out.bytes())
}

// TestKubectlWait: "kubectl wait" ends when a pod of a worker is as it should be.
func TestKubectlWait(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "awaited"}, east, "")
	pod := runs(t, east, job)[0]
	r := viewer.Kubectl(t.Context(), "wait", "pod/"+pod, "--for=condition=Ready", "--timeout=60s")
	check.Equal(t, 0, r.Code, "code: %s", r)
	contains(t, r.Out, "condition met")
}

// lockedBuffer is a buffer that can be read while a command writes.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write adds to the buffer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.buffer.Bytes())
}

// String returns what was written.
func (b *lockedBuffer) String() string { return string(b.bytes()) }
