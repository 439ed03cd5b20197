// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
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

// TestControllerRuntimeCache: a cache of controller-runtime has the pods of all workers, whole and their metadata, and
// learns of later ones.
func TestControllerRuntimeCache(t *testing.T) {
	t.Parallel()
	before := submit(t, yard.Job{Name: "cached-before"}, east, "")
	first := runs(t, east, before)[0]
	c, err := cache.New(configOf(t, viewer), cache.Options{DefaultNamespaces: map[string]cache.Config{team: {}}})
	check.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	defer func() {
		cancel()
		check.Must(t, <-ended)
	}()
	// The first read of a kind waits until its informer has synced.
	within, stop := context.WithTimeout(t.Context(), y.Timeout)
	defer stop()
	whole, meta := &corev1.Pod{}, &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	for _, object := range []client.Object{whole, meta} {
		check.Must(t, c.Get(within, client.ObjectKey{Namespace: team, Name: first}, object))
		check.Equal(t, east, object.GetLabels()[v1alpha1.LabelCluster], "cluster of the pod that ran before")
	}
	check.Equal(t, corev1.PodRunning, whole.Status.Phase, "phase")
	later := submit(t, yard.Job{Name: "cached-later"}, west, "")
	second := client.ObjectKey{Namespace: team, Name: runs(t, west, later)[0]}
	eventually(t, func() bool {
		return c.Get(t.Context(), second, whole) == nil && whole.Status.Phase == corev1.PodRunning
	})
	eventually(t, func() bool { return c.Get(t.Context(), second, meta) == nil })
	check.Must(t, y.Hub.Delete(t.Context(), later))
	for _, object := range []client.Object{whole, meta} {
		eventually(t, func() bool { return apierrors.IsNotFound(c.Get(t.Context(), second, object)) })
	}
}

// connection is that of an informer. It keeps what the informer asks for.
type connection struct {
	mu sync.Mutex
	// begun and resumed are the versions at which the informer has begun anew, by a LIST or by a watch that sends what there
	// is, and those at which watches went on; under mu.
	begun, resumed []string
	open           []net.Conn // under mu
	// expire makes the next watch that goes on name a version that has expired.
	expire atomic.Bool
}

func (c *connection) counts() (begun, resumed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.begun), slices.Clone(c.resumed)
}

// cut breaks what is open off.
func (c *connection) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.open {
		_ = one.Close()
	}
	c.open = nil
}

// informer returns an informer of the team's pods that a label selects. The server ends its watches after some seconds.
func (c *connection) informer(t *testing.T, selector string) toolscache.SharedIndexInformer {
	t.Helper()
	config := configOf(t, viewer)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		one, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.open = append(c.open, one)
		}
		return one, err
	}
	typed, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	pods := typed.CoreV1().Pods(team)
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			c.mu.Lock()
			c.begun = append(c.begun, options.ResourceVersion)
			c.mu.Unlock()
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			c.mu.Lock()
			if ptr.Deref(options.SendInitialEvents, false) {
				options.TimeoutSeconds = ptr.To[int64](20) // So long a busy machine may take for the first objects.
				c.begun = append(c.begun, options.ResourceVersion)
			} else {
				options.TimeoutSeconds = ptr.To[int64](8) // An informer takes a watch that ends within a second for a failure.
				if c.expire.CompareAndSwap(true, false) {
					options.ResourceVersion = "1" // Nobody knows what the client had of the workers' pods then.
				}
				c.resumed = append(c.resumed, options.ResourceVersion)
			}
			c.mu.Unlock()
			return pods.Watch(ctx, options)
		},
	}
	return toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(lw, typed), &corev1.Pod{}, 0, nil)
}

// counter counts how often pods have come and gone for the users of an informer.
type counter struct {
	mu    sync.Mutex
	added map[string]int // under mu
	gone  map[string]int // under mu
}

// OnAdd counts a pod that has come.
func (c *counter) OnAdd(object any, _ bool) { c.count(c.added, object) }

// OnUpdate counts nothing.
func (c *counter) OnUpdate(any, any) {}

// OnDelete counts a pod that has gone.
func (c *counter) OnDelete(object any) {
	if missed, is := object.(toolscache.DeletedFinalStateUnknown); is {
		object = missed.Obj
	}
	c.count(c.gone, object)
}

func (c *counter) count(of map[string]int, object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of[object.(*corev1.Pod).Name]++
}

// TestInformerGoesOn: an informer whose watch the server ends in order, or whose connection breaks, goes on where it was. It
// begins anew only if its version has expired. In each case it has the right pods, without one that goes and comes again.
func TestInformerGoesOn(t *testing.T) {
	t.Parallel()
	stays, beside := submit(t, yard.Job{Name: "goes-on-stays"}, east, ""), submit(t, yard.Job{Name: "goes-on-west"}, west, "")
	staying := runs(t, east, stays)[0]
	runs(t, west, beside) // Without a job there, a watch could not go on at a version of this worker.
	c, seen := &connection{}, &counter{added: map[string]int{}, gone: map[string]int{}}
	informer := c.informer(t, "jobset.sigs.k8s.io/jobset-name in (goes-on-stays, goes-on-west, goes-on-1, goes-on-2, goes-on-3)")
	_, err := informer.AddEventHandler(seen)
	check.Must(t, err)
	go informer.Run(t.Context().Done())
	within, cancel := context.WithTimeout(t.Context(), y.Timeout)
	defer cancel()
	if !toolscache.WaitForCacheSync(within.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	ended := func() {
		t.Helper()
		_, from := c.counts()
		eventually(t, func() bool { _, now := c.counts(); return len(now) > len(from) })
	}
	// through has a job come and go, after something each.
	through := func(name string, before func()) {
		t.Helper()
		has := func(pod string) bool { _, has, _ := informer.GetStore().GetByKey(team + "/" + pod); return has }
		before()
		job := submit(t, yard.Job{Name: name}, west, "")
		pod := runs(t, west, job)[0]
		eventually(t, func() bool { return has(pod) })
		before()
		check.Must(t, y.Hub.Delete(t.Context(), job))
		eventually(t, func() bool { return !has(pod) })
		seen.mu.Lock()
		defer seen.mu.Unlock()
		check.Diff(t, []int{1, 1, 1, 0}, []int{seen.added[pod], seen.gone[pod], seen.added[staying], seen.gone[staying]},
			"how often the job's pod has come and gone, and how often the pod that stays has")
	}
	through("goes-on-1", ended)
	begun, resumed := c.counts()
	check.Equal(t, 1, len(begun), "beginnings of an informer whose watches end in order. They went on at %q", resumed)

	c.expire.Store(true)
	eventually(t, func() bool { begun, _ = c.counts(); return len(begun) == 2 })
	contains(t, begun[1], "trainyard/:") // It names the version of its last objects, and has to get all of them again.
	through("goes-on-2", func() {})

	_, resumed = c.counts()
	from := len(resumed)
	c.cut()
	eventually(t, func() bool { _, resumed = c.counts(); return len(resumed) > from })
	through("goes-on-3", func() {})
	begun, resumed = c.counts()
	check.Equal(t, 2, len(begun), "beginnings in all: %q. Watches went on at %q", begun, resumed)
}

// TestKubectlWatchesAll: "kubectl get pods -A -w" of a user who may see all namespaces shows the pods of jobs of all of them,
// also of one that is new.
func TestKubectlWatchesAll(t *testing.T) {
	t.Parallel()
	const fresh = "made-later"
	u := newSeer(t, "wanda")
	ctx, cancel := context.WithCancel(t.Context())
	command := u.Command(ctx, "get", "pods", "-A", "-w")
	var out lockedBuffer
	command.Stdout, command.Stderr = &out, &out
	check.Must(t, command.Start())
	defer func() { _ = command.Wait() }()
	defer cancel()
	row := func(namespace, pod, status string) {
		t.Helper()
		pattern := regexp.MustCompile(`(?m)^` + namespace + ` +` + pod + ` +[01]/1 +` + status + ` `)
		eventually(t, func() bool { return pattern.Match(out.bytes()) })
	}
	check.Must(t, y.Hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fresh}}))
	for _, job := range []*trainer.TrainJob{
		submit(t, yard.Job{Name: "seen-by-all"}, east, ""), submit(t, yard.Job{Namespace: other, Name: "seen-by-all"}, west, ""),
		submit(t, yard.Job{Namespace: fresh, Name: "seen-by-all"}, west, ""),
	} {
		pod := runs(t, placeOf(t, job), job)[0]
		row(job.Namespace, pod, "Running")
		check.Must(t, y.Hub.Delete(t.Context(), job))
		row(job.Namespace, pod, "Terminating")
	}
	if headers := bytes.Count(out.bytes(), []byte("NAMESPACE ")); headers != 1 {
		t.Errorf("there are %d headers in\n%s", headers, out.bytes())
	}
	r := viewer.Kubectl(t.Context(), "get", "pods", "-A", "-w")
	check.Equal(t, 1, r.Code, "code of a user of one namespace: %s", r)
	contains(t, r.Err, `cannot list resource "pods" in API group "" at the cluster scope`)
}

// newSeer returns a user who may view all namespaces.
func newSeer(t *testing.T, name string) *yard.User {
	t.Helper()
	u, err := y.NewUser(t.Context(), other, name, "view")
	check.Must(t, err)
	create(t, y.Hub, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: other, Name: name}},
	})
	eventually(t, func() bool { return u.Kubectl(t.Context(), "auth", "can-i", "list", "pods", "-A").Code == 0 })
	return u
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
