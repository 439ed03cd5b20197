// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	// seedVariable sets the first seed of TestRandomLives. The timing still differs each time.
	seedVariable = "TRAINYARD_LIVES_SEED"
	// livesVariable says how many seeds TestRandomLives draws. Default: one.
	livesVariable = "TRAINYARD_LIVES"

	livesAtOnce = 20
	eventsEach  = 12

	finalizer = "example.com/test"
)

// TestRandomLives lets random things happen to many TrainJobs at once. It checks what the controller did over the whole
// history (see checks), and the state when nothing happens any more (see life.settled).
func TestRandomLives(t *testing.T) {
	e := lifeEnv(t)
	seeds := []uint64{number(t, seedVariable, rand.Uint64())}
	for range number(t, livesVariable, 1) - 1 {
		seeds = append(seeds, rand.Uint64())
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { e.randomLives(t, seed) })
	}
}

// number returns the number in an environment variable, or the default if the variable is not set.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(variable)
	if !ok {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil || value == 0 {
		t.Fatalf("%s=%q: want a positive number", variable, text)
	}
	return value
}

func (e *lifeEnvironment) randomLives(t *testing.T, seed uint64) {
	ns := e.namespace(t)
	h := e.record(t, ns)
	var lives sync.WaitGroup
	all := make([]*life, livesAtOnce)
	for i := range all {
		name := fmt.Sprintf("life-%d", i)
		l := &life{e: e, h: h, t: t, ns: ns, name: name, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		all[i] = l
		lives.Go(l.live)
	}
	lives.Wait()
	var wrong []string
	for _, l := range all {
		if l.err != nil {
			wrong = append(wrong, l.err.Error())
		}
	}
	defer func() { report(t, seed, all, wrong) }() // in case the history cannot be read
	wrong = append(wrong, h.violations(t, e, ns)...)
	for _, l := range all { // Delete the jobs, so that the next run has room.
		check.Must(t, errors.Join(l.removeFinalizer(), client.IgnoreNotFound(l.delete(metav1.DeletePropagationBackground))))
	}
}

// report prints first what happened to the jobs concerned, then what is wrong, because readers see the end of a log.
func report(t *testing.T, seed uint64, all []*life, wrong []string) {
	t.Helper()
	if len(wrong) == 0 && !t.Failed() {
		return
	}
	for _, l := range all {
		name := regexp.MustCompile(`\b` + l.name + `\b`)
		if slices.ContainsFunc(wrong, name.MatchString) {
			t.Logf("%s: %s\n%s", l.name, strings.Join(l.trace, ", "), l.last)
		}
	}
	t.Logf("%s=%d may show it again", seedVariable, seed)
	for _, text := range wrong {
		t.Error(text)
	}
}

// life is what happens to the TrainJobs of one name, one after the other.
type life struct {
	e        *lifeEnvironment
	h        *history
	t        *testing.T
	ns, name string
	random   *rand.Rand
	trace    []string
	// err is why the life ended early. last describes what the cluster had then.
	err  error
	last string

	uid types.UID // of the present TrainJob
	// wishes are what the TrainJob's runtimePatches say.
	wishes wishes
	// loose: the JobSet may not have been suspended when the patches changed, or it may not have seen them while it was.
	// They take effect at the next suspension. For users, the webhook refuses such patches while pods run.
	loose    bool
	deleting bool
}

// wishes are what a TrainJob's pods get beyond what the runtime says.
type wishes struct {
	pool, affinity, runFor, fail string
	// lingers is how long a pod runs on after its deletion. It never changes.
	lingers string
}

func (w wishes) template() *trainer.PodTemplatePatch {
	p := &trainer.PodTemplatePatch{Metadata: annotated(
		clusters.RunForAnnotation, w.runFor, clusters.TerminateForAnnotation, w.lingers), Spec: &trainer.PodSpecPatch{}}
	if w.fail != "" {
		p.Metadata.Annotations[clusters.FailAnnotation] = w.fail
	}
	if w.pool != "" {
		p.Spec.NodeSelector = map[string]string{poolLabel: w.pool}
	}
	if w.affinity != "" {
		p.Spec.Affinity = poolAffinity(w.affinity)
	}
	return p
}

// happening is something that can happen to a TrainJob. Nothing happens if the object that it changes does not exist.
type happening struct {
	name   string
	weight int
	do     func(*life) error
}

var happenings = []happening{
	{"resume", 6, func(l *life) error { return l.suspend(false) }},
	{"suspend", 4, func(l *life) error { l.loose = true; return l.suspend(true) }},
	{"patch and suspend", 4, func(l *life) error { l.wish(); return l.patch(new(true)) }},
	{"patch as it is", 2, func(l *life) error { l.wish(); return l.patch(nil) }},
	{"patch and resume", 3, (*life).patchAndResume},
	{"delete JobSet", 3, func(l *life) error { return l.deleteJobSet(metav1.DeletePropagationBackground) }},
	{"delete JobSet with pods", 2, func(l *life) error {
		return errors.Join(l.awaitPods(), l.deleteJobSet(metav1.DeletePropagationBackground))
	}},
	{"delete JobSet in the foreground", 1, func(l *life) error { return l.deleteJobSet(metav1.DeletePropagationForeground) }},
	{"delete a pod", 2, (*life).deletePod},
	{"settle", 4, (*life).settle},
	{"await pods", 8, (*life).awaitPods},
	{"await the end", 6, (*life).awaitEnd},
	{"delete", 1, func(l *life) error { return l.delete(metav1.DeletePropagationBackground) }},
	{"delete in the foreground", 1, func(l *life) error { return l.delete(metav1.DeletePropagationForeground) }},
	{"delete with a finalizer", 1, (*life).deleteWithFinalizer},
	{"restart controller", 1, func(l *life) error {
		if l.random.IntN(5) > 0 { // All lives share one controller.
			return nil
		}
		return l.e.restartController()
	}},
}

func (l *life) live() {
	steps := []happening{{"create", 0, (*life).create}}
	for range eventsEach {
		steps = append(steps, l.pick())
	}
	steps = append(steps, happening{"the end", 0, (*life).conclude})
	for _, step := range steps {
		if (l.deleting || l.over()) && l.random.IntN(3) == 0 {
			l.trace = append(l.trace, "create again")
			if err := l.createAgain(); err != nil {
				l.fail("create again", err)
				return
			}
		}
		l.trace = append(l.trace, step.name)
		if err := step.do(l); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			l.fail(step.name, err)
			return
		}
	}
}

func (l *life) fail(step string, err error) {
	l.err, l.last = fmt.Errorf("%s: %s: %w", l.name, step, err), l.describe()
}

func (l *life) pick() happening {
	sum := 0
	for _, h := range happenings {
		sum += h.weight
	}
	n := l.random.IntN(sum)
	for _, h := range happenings {
		if n -= h.weight; n < 0 {
			return h
		}
	}
	return happenings[0]
}

func oneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func (l *life) create() error {
	l.wishes = wishes{runFor: oneOf(l.random, "50ms", "1s", clusters.RunForever, clusters.RunForever)}
	l.wishes.fail = oneOf(l.random, "", "", "out of luck")
	l.wishes.lingers = oneOf(l.random, "0s", "1s")
	l.loose, l.deleting = false, false
	j := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: l.name},
		Spec: trainer.TrainJobSpec{
			RuntimeRef: trainer.RuntimeRef{
				Name: oneOf(l.random, "torch-distributed", brittleRuntime, restartsRuntime, restartsRuntime, ttlRuntime, stepsRuntime),
			},
			Suspend: new(l.random.IntN(3) == 0),
		},
	}
	patchRuntime(l.wishes.template())(j)
	err := l.await("room for the TrainJob", func(ctx context.Context) error { return l.e.Create(ctx, j) })
	l.uid = j.UID
	return err
}

// over says whether the present TrainJob has no interesting events ahead.
func (l *life) over() bool {
	j := l.object()
	return l.e.Get(l.t.Context(), client.ObjectKeyFromObject(j), j) == nil && hasEnded(&j.Status)
}

// createAgain deletes the TrainJob if it still exists, and creates a TrainJob of the same name as soon as possible.
func (l *life) createAgain() error {
	if err := client.IgnoreNotFound(l.delete(metav1.DeletePropagationBackground)); err != nil {
		return err
	}
	if err := l.removeFinalizer(); err != nil {
		return err
	}
	return l.create()
}

// wish changes one wish about the pods.
func (l *life) wish() {
	switch l.random.IntN(4) {
	case 0:
		l.wishes.affinity = oneOf(l.random, "", "a", "b")
	case 1:
		l.wishes.runFor = oneOf(l.random, "50ms", "1s", clusters.RunForever)
	case 2:
		l.wishes.fail = oneOf(l.random, "", "out of luck")
	default:
		l.wishes.pool = oneOf(l.random, "", "a", "b")
	}
}

// patch sets the runtimePatches and, unless suspend is nil, spec.suspend, in one request.
func (l *life) patch(suspend *bool) error {
	l.loose = true
	var j trainer.TrainJob
	patchRuntime(l.wishes.template())(&j)
	return l.merge(map[string]any{"spec": struct {
		Suspend        *bool                  `json:"suspend,omitempty"`
		RuntimePatches []trainer.RuntimePatch `json:"runtimePatches"`
	}{suspend, j.Spec.RuntimePatches}})
}

func (l *life) suspend(suspend bool) error {
	return l.merge(map[string]any{"spec": map[string]any{"suspend": suspend}})
}

// patchAndResume patches as the webhook demands. Controller and JobSet have surely seen the suspension: a JobSet that
// is resumed before it has suspended its Jobs leaves their pods unchanged.
func (l *life) patchAndResume() error {
	for _, step := range []func() error{
		func() error { return l.suspend(false) }, l.settle, func() error { return l.suspend(true) }, l.settle, l.awaitStandstill,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	wasLoose := l.loose
	l.wish()
	err := l.patch(new(false))
	l.loose = wasLoose
	return err
}

func (l *life) merge(patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return l.e.Patch(l.t.Context(), l.object(), client.RawPatch(types.MergePatchType, data))
}

func (l *life) object() *trainer.TrainJob {
	return &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: l.name}}
}

func (l *life) deleteJobSet(policy metav1.DeletionPropagation) error {
	return l.e.Delete(l.t.Context(),
		&jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: l.name}}, client.PropagationPolicy(policy))
}

// deletePod deletes one pod. That fails the pod's Job.
func (l *life) deletePod() error {
	var list corev1.PodList
	err := l.e.List(l.t.Context(), &list, client.InNamespace(l.ns), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: l.name})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	return l.e.Delete(l.t.Context(), &list.Items[l.random.IntN(len(list.Items))])
}

func (l *life) delete(policy metav1.DeletionPropagation) error {
	err := l.e.Delete(l.t.Context(), l.object(), client.PropagationPolicy(policy))
	if client.IgnoreNotFound(err) == nil {
		l.h.deleted(l.uid)
		l.deleting = true
	}
	return err
}

func (l *life) deleteWithFinalizer() error {
	if l.deleting { // An object that is being deleted takes no new finalizers.
		return nil
	}
	if err := l.merge(map[string]any{"metadata": map[string]any{"finalizers": []string{finalizer}}}); err != nil {
		return err
	}
	return l.delete(oneOf(l.random, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground))
}

// removeFinalizer removes only the test's finalizer, not the finalizer of foreground deletion.
func (l *life) removeFinalizer() error {
	return l.await("finalizer to go", func(ctx context.Context) error {
		j := l.object()
		if err := l.e.Get(ctx, client.ObjectKeyFromObject(j), j); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := len(j.Finalizers)
		j.Finalizers = without(j.Finalizers, finalizer)
		if len(j.Finalizers) == before {
			return nil
		}
		return client.IgnoreNotFound(l.e.Update(ctx, j))
	})
}

func without(list []string, value string) (rest []string) {
	for _, v := range list {
		if v != value {
			rest = append(rest, v)
		}
	}
	return rest
}

// await calls try until it succeeds.
func (l *life) await(what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(l.t.Context(), 20*time.Millisecond, waitLimit, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if ctx.Err() == nil && (err == nil || !strings.Contains(err.Error(), "rate limiter")) {
			last = err // This error says more than an error about the deadline.
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w; last: %w", what, err, last)
	}
	return nil
}

// describe lists what the cluster has, for whoever looks for the fault.
func (l *life) describe() string {
	text := ""
	for _, kind := range []string{"trainjob", "jobset", "job", "pod"} {
		selector := "jobset.sigs.k8s.io/jobset-name=" + l.name
		args := []string{"get", kind, "-n", l.ns, "-o", "yaml", "-l", selector}
		if kind == "trainjob" || kind == "jobset" {
			args = []string{"get", kind, "-n", l.ns, "-o", "yaml", l.name}
		}
		out, err := l.e.cluster.Kubectl(l.t.Context(), args...)
		if err != nil {
			out = []byte(err.Error())
		}
		text += fmt.Sprintf("%s:\n%s\n", kind, out)
	}
	return text
}
