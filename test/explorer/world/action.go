// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// Op is a kind of action.
type Op string

// What processes do, one step at a time.
const (
	// Deliver: process Who sees one change in its cache What.
	Deliver Op = "deliver"
	// Start: controller What of process Who begins to reconcile Key.
	Start Op = "start"
	// Serve: that reconcile's request and its answer arrive. Apply: the request arrives, and the answer waits for Answer.
	Serve  Op = "serve"
	Apply  Op = "apply"
	Answer Op = "answer"
	// Lose loses the request, Mute its answer. Late: it arrives after the sender has given up. Repeat: it arrives twice.
	Lose   Op = "lose"
	Mute   Op = "mute"
	Late   Op = "late"
	Repeat Op = "repeat"
	// Arrive: the late message What arrives.
	Arrive Op = "arrive"
	// Advance lets the time For pass. Elapse does so too, and meanwhile all processes do what is due.
	Advance Op = "advance"
	Elapse  Op = "elapse"
	// Collect: the hub's garbage collector works.
	Collect Op = "collect"
)

// Action is something that happens in a world. It means the same in each world in which it can happen.
type Action struct {
	Op             Op
	Who, What, Key string
	For            time.Duration
	N              int
}

func (a Action) String() string {
	text := string(a.Op)
	for _, part := range []string{a.Who, a.What, a.Key} {
		if part != "" {
			text += " " + part
		}
	}
	if a.For != 0 {
		text += " " + a.For.String()
	}
	if a.N != 0 {
		text += fmt.Sprintf(" %d", a.N)
	}
	return text
}

// Do does an action. It returns false if the action cannot happen, or would break what the hub relies on.
func (w *World) Do(a Action) (done bool) {
	if w.Failed() {
		return false
	}
	if w.Tell != nil {
		w.tell("%s", a)
	}
	w.count()
	switch a.Op {
	case Advance:
		w.advance(a.For, false)
		return true
	case Elapse:
		w.advance(a.For, true)
		return true
	case Collect:
		w.collectOwned()
		return true
	case Arrive:
		return w.arrive(a.What)
	case Deliver, Start, Serve, Apply, Answer, Lose, Mute, Late, Repeat:
		p := w.process(a.Who)
		return p != nil && p.active() && p.do(a)
	default:
	}
	if done, known := w.disturb(a); known {
		return done
	}
	return w.use(a)
}

func (w *World) process(name string) *process {
	for _, p := range w.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

func parseKey(text string) types.NamespacedName {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Name: text}
}

// do has the process do a step.
func (p *process) do(a Action) bool {
	if a.Op == Deliver {
		f := p.feed(a.What)
		if f == nil || f.view.Behind() == 0 || !p.reaches(f.from) {
			return false
		}
		p.deliver(f)
		return true
	}
	l := p.loop(a.What)
	if l == nil {
		return false
	}
	l.promote()
	key := parseKey(a.Key)
	if a.Op == Start {
		return l.start(key)
	}
	at := slices.IndexFunc(l.tasks, func(t *task) bool { return t.key == key })
	return at >= 0 && l.tasks[at].proceed(a.Op)
}

// proceed decides about a request.
func (t *task) proceed(op Op) bool {
	w, call := t.loop.process.world, t.call
	if op == Answer || t.done {
		if !t.done || op != Answer {
			return false
		}
		t.resume()
		return true
	}
	if (op != Lose && op != Late) && !t.loop.process.reaches(call.Server) {
		return false
	}
	if w.sentLate(t.loop.process, call) {
		call.Err = remote.ErrNotLeading
		t.resume()
		return true
	}
	switch op {
	case Serve:
		call.Answer, call.Err = w.apply(call)
	case Apply:
		call.Answer, call.Err = w.apply(call)
		t.done = true
		return true
	case Lose:
		call.Err = errLost
	case Mute:
		_, _ = w.apply(call)
		call.Err = errLost
	case Late:
		if !call.Write {
			return false
		}
		w.limbo = append(w.limbo, &message{name: w.nameOf(t), call: call, server: call.Server})
		call.Err = errLost
	case Repeat:
		if !call.Write {
			return false
		}
		w.limbo = append(w.limbo, &message{name: w.nameOf(t), call: call, server: call.Server})
		call.Answer, call.Err = w.apply(call)
	default:
		return false
	}
	t.resume()
	return true
}

// sentLate is true for a write by a manager that does not certainly lead. Package remote does not send it.
func (w *World) sentLate(p *process, call *memory.Call) bool {
	if !call.Write || call.Server == w.Hub && w.Broken.NoDoubt {
		return false
	}
	for _, m := range w.managers {
		if &m.process == p {
			return !m.certain()
		}
	}
	return false
}

// nameOf is a name that no other message under way has.
func (w *World) nameOf(t *task) string {
	name := fmt.Sprintf("%s of %s %s", t.call.Text(), t.loop.process.name, t.loop.name)
	for n, full := 1, name; ; n++ {
		if !slices.ContainsFunc(w.limbo, func(m *message) bool { return m.name == full }) {
			return full
		}
		full = fmt.Sprintf("%s (%d)", name, n)
	}
}

func (w *World) arrive(name string) bool {
	at := slices.IndexFunc(w.limbo, func(m *message) bool { return m.name == name })
	if at < 0 {
		return false
	}
	m := w.limbo[at]
	if k := w.worker(v1alpha1.ClusterName(m.server.Name)); k != nil && k.down {
		return false
	}
	w.limbo = slices.Delete(w.limbo, at, at+1)
	_, _ = w.apply(m.call)
	return true
}

// apply has a request reach its server.
func (w *World) apply(call *memory.Call) (any, error) {
	answer, err := call.Do()
	if version, ok := answer.(*memory.Version); ok && err == nil && call.Verb == "create" && call.Kind == memory.TrainJob {
		w.created(call.Server, version.Object.(*unstructured.Unstructured))
	}
	return answer, err
}

// created notes a copy whose creation has arrived after its attempt had ended for another reason than time. The hub
// deletes it when it sees it, and it may run until then. This is documented.
func (w *World) created(server *memory.Server, copy *unstructured.Unstructured) {
	origin, attempt := types.UID(copy.GetLabels()[v1alpha1.LabelOriginUID]), copy.GetAnnotations()[v1alpha1.AnnotationAttempt]
	if !w.ledger.over[done{origin, attempt}] && !w.jobEnded(keyOf(copy.GetName()), origin) {
		return
	}
	if version := w.Hub.Get(memory.Dispatch, keyOf(copy.GetName())); version != nil {
		for _, past := range version.Object.(*v1alpha1.Dispatch).Status.History {
			fenced := copy.GetAnnotations()[v1alpha1.AnnotationFailover] == string(v1alpha1.FailoverFenced)
			if attemptText(past.Attempt) == attempt && past.Outcome == v1alpha1.OutcomeWorkerLost && fenced {
				return
			}
		}
	}
	w.ledger.givenUp[given{origin, attempt, server.Name}] = true
	w.ledger.untold[given{origin, attempt, server.Name}] = true
}

// describe says in words what a change has done.
func describe(change memory.Change) string {
	verb := "changes"
	version := change.After
	switch {
	case change.Before == nil:
		verb = "creates"
	case change.After == nil:
		verb, version = "removes", change.Before
	}
	return fmt.Sprintf("%s %s %s %s: %s", change.Actor, verb, change.Kind, change.Key.Name, state(version))
}

func state(version *memory.Version) string {
	object := version.Object
	text := string(object.GetUID())
	switch object := object.(type) {
	case *v1alpha1.Dispatch:
		text = fmt.Sprintf("%s, attempt %d on %q, %s", record.StateOf(object), object.Spec.Attempt, object.Spec.Cluster, object.Spec.Failover)
		for _, kind := range []string{v1alpha1.DispatchMirrored, v1alpha1.DispatchWorkerLost, v1alpha1.DispatchFinished} {
			if c := meta.FindStatusCondition(object.Status.Conditions, kind); c != nil {
				text += fmt.Sprintf(", %s=%s/%s", kind, c.Status, c.Reason)
			}
		}
	case *v1alpha1.ExecutionLease:
		text = fmt.Sprintf("challenge %s, answer %s, %s", object.Status.Challenge, object.Spec.Answer, object.Status.State)
	case *v1alpha1.WorkerCluster:
		if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady); c != nil {
			text = c.Reason
		}
	case *corev1.Pod:
		text = fmt.Sprintf("%s, attempt %s, %s", object.UID, object.Labels[labelAttempt], object.Status.Phase)
	case *unstructured.Unstructured:
		text += describeJob(object)
	}
	if object.GetDeletionTimestamp() != nil {
		text += ", going " + strings.Join(object.GetFinalizers(), " ")
	}
	return text
}

func describeJob(job *unstructured.Unstructured) string {
	text := ""
	if attempt := job.GetAnnotations()[v1alpha1.AnnotationAttempt]; attempt != "" {
		text += ", attempt " + attempt
	}
	if challenge := job.GetAnnotations()[v1alpha1.AnnotationChallenge]; challenge != "" {
		text += ", challenge " + challenge
	}
	if trainjobs.Suspended(job) {
		text += ", suspended"
	}
	if _, fenced := job.GetAnnotations()[v1alpha1.AnnotationFenced]; fenced {
		text += ", fenced"
	}
	if end := trainjobs.Terminal(job); end != nil {
		text += ", " + end.Type
	}
	return text
}
