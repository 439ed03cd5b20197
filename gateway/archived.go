// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/logarchive"
)

// maxNamed is how many pods, or attempts, are named in a warning.
const maxNamed = 10

// archived answers for pods that are gone. Nil: there is no archive.
type archived struct {
	store  *logarchive.Archive
	hub    *hub
	access *access
	copies *copies
	limits *limits
	log    logr.Logger
}

// pod answers for a pod that is gone, if its logs are kept: kubectl reads the pod before it reads the log. Who
// wants a table, or metadata only, does not want to read logs.
func (a *archived) pod(w http.ResponseWriter, q *question) (answered bool) {
	if a == nil || q.form.table || q.form.as != "" {
		return false
	}
	found, ok := a.find(q.ctx, w, q.caller, q.info, nil)
	if !ok || found.Pod == nil {
		return false
	}
	w.Header().Set("Content-Type", typeJSON)
	_ = json.NewEncoder(w).Encode(podOf(found.Index, found.Pod)) // The client may have gone.
	return true
}

// list answers with the pods of a job whose logs are kept, if the caller selects such pods and may list pods. Who wants a
// table gets objects, of which clients make one.
func (a *archived) list(w http.ResponseWriter, q *question) (answered bool) {
	if a == nil || !q.asked.archived || q.asked.job == "" || q.form.as != "" && !q.form.table {
		return false
	}
	if allowed, err := a.access.allows(q.ctx, q.caller, attributes(q.info, "list")); err != nil || !allowed {
		return false // The hub says why.
	}
	uid, ok := a.namespaceUID(q.ctx, q.asked.namespace)
	if !ok {
		return false
	}
	kept, err := a.store.Of(q.ctx, q.asked.namespace, uid, q.asked.job)
	if err != nil {
		a.log.Error(err, "The log archive does not answer")
		fail(w, unavailable("the log archive does not answer"))
		return true
	}
	pods := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kindPod + "List"}, Items: []corev1.Pod{}}
	for _, x := range kept {
		if x.Missing != "" {
			warn(w, aboutAttempt(x))
		}
		for i := range x.Pods {
			if pod := podOf(x, &x.Pods[i]); q.asked.matches(&pod.ObjectMeta) {
				pods.Items = append(pods.Items, *pod)
			}
		}
	}
	w.Header().Set("Content-Type", typeJSON)
	_ = json.NewEncoder(w).Encode(pods) // The client may have gone.
	return true
}

// namespaceUID returns the UID of a namespace of the hub. ok is false if it is not known.
func (a *archived) namespaceUID(ctx context.Context, name string) (uid types.UID, ok bool) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := a.hub.cached.Get(ctx, types.NamespacedName{Name: name}, namespace)
	return namespace.UID, err == nil
}

// logOf answers with what the archive has of a log. The caller may read the log of a pod of this name.
func (a *archived) logOf(w http.ResponseWriter, r *http.Request, v *visit) (answered bool) {
	if a == nil || v.info.Subresource != subresourceLog {
		return false
	}
	found, ok := a.find(r.Context(), w, v.caller, v.info, v)
	if !ok || found.Pod == nil {
		return false
	}
	refuse := func(s *metav1.Status) bool {
		v.refused(sourceArchive, found.Index.Worker, s)
		fail(w, s)
		return true
	}
	options, refused := logOptionsOf(r.URL.Query(), found.Pod)
	if refused != nil {
		return refuse(refused)
	}
	v.container = options.Container
	kept := found.Pod.Log(options.Container, options.Previous)
	if kept == nil || kept.Missing != "" {
		return refuse(notKept(found, options, kept))
	}
	text, err := a.store.Read(r.Context(), found.Index.Attempt, found.Pod.Name, kept)
	if err != nil {
		a.log.Error(err, "The log archive does not answer")
		return refuse(unavailable("the log of pod %q is kept, and the log archive does not answer", found.Pod.Name))
	}
	v.answered(sourceArchive, found.Index.Worker, found.Index.Job, http.StatusOK)
	warn(w, aboutLog(found, kept))
	if query := r.URL.Query(); isTrue(query["timestamps"]) || query.Has("sinceSeconds") || query.Has("sinceTime") {
		warn(w, "the log archive keeps no times of lines: the options for them have no effect")
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(cutLog(text, options)) //nolint:gosec // It is plain text. The client may have gone.
	return true
}

// find searches the archive for a pod that hub and worker do not have. If it is not there, warnings say what is known
// of its job. ok is false if the archive cannot say anything, or unless the hub says that it has no such pod. v is nil if
// the caller does not ask for a log.
func (a *archived) find(
	ctx context.Context, w http.ResponseWriter, c *caller, info *apirequest.RequestInfo, v *visit,
) (*logarchive.Found, bool) {
	if !safeNames(info) || a.hub.asked(ctx, c, info) != http.StatusNotFound {
		return nil, false
	}
	user, err := a.access.user(ctx, c)
	if err != nil {
		return nil, false // The hub says why.
	}
	leave, ok := a.limits.enter(user)
	if !ok {
		refused := tooMany(user)
		v.refused(sourceArchive, "", refused)
		warn(w, refused.Message)
		return nil, false
	}
	defer leave()
	uid, ok := a.namespaceUID(ctx, info.Namespace)
	if !ok {
		return nil, false
	}
	found, err := a.store.Find(ctx, info.Namespace, uid, info.Name, jobsOf(info.Name))
	if err != nil {
		a.log.Error(err, "The log archive does not answer")
		warn(w, "the log archive does not answer")
		return nil, false
	}
	if found.Pod == nil {
		a.warnOfLost(ctx, w, info, found)
	}
	return found, true
}

// warnOfLost says what was lost of the jobs to which a pod may have belonged, and which of their pods are kept.
func (a *archived) warnOfLost(ctx context.Context, w http.ResponseWriter, info *apirequest.RequestInfo, found *logarchive.Found) {
	said := map[logarchive.Attempt]bool{}
	for _, x := range found.Others[:min(len(found.Others), maxNamed)] {
		said[x.Attempt] = true
		if words := aboutAttempt(x); words != "" {
			warn(w, words)
		}
	}
	for _, d := range a.copies.byPod(ctx, info.Namespace, info.Name) {
		for _, past := range d.Status.History {
			attempt := logarchive.Attempt{Namespace: d.Namespace, Job: d.Name, UID: d.Spec.TrainJob.UID, Number: past.Attempt}
			if past.Outcome == v1alpha1.OutcomeWorkerLost && !said[attempt] {
				warn(w, fmt.Sprintf("attempt %d of TrainJob %s/%s was on worker %q, which was lost with the logs of its pods",
					past.Attempt, d.Namespace, d.Name, past.Cluster))
			}
		}
	}
}

// aboutAttempt says what is kept of an attempt that does not have the pod.
func aboutAttempt(x *logarchive.Index) string {
	words := fmt.Sprintf("attempt %d of TrainJob %s/%s on worker %q (%s)", x.Number, x.Namespace, x.Job, x.Worker, x.Reason)
	var names []string
	for i := range x.Pods[:min(len(x.Pods), maxNamed)] {
		names = append(names, x.Pods[i].Name)
	}
	switch {
	case x.Missing != "":
		return words + ": " + x.Missing
	case len(x.Pods) > maxNamed:
		return fmt.Sprintf("%s: the logs of %d pods are kept, such as %s", words, len(x.Pods), strings.Join(names, ", "))
	case len(x.Pods) > 0:
		return words + ": the logs of these pods are kept: " + strings.Join(names, ", ")
	}
	return ""
}

// aboutLog says where a log comes from, and how much of it there is.
func aboutLog(found *logarchive.Found, kept *logarchive.Container) string {
	x := found.Index
	words := fmt.Sprintf("from the log archive: attempt %d of TrainJob %s on worker %q, %s, read at %s; ",
		x.Number, x.Job, x.Worker, x.Reason, x.KeptAt.Format(time.RFC3339))
	if kept.Whole {
		words += "the whole log"
	} else {
		words += fmt.Sprintf("the last %d bytes, and what the container printed before is cut", kept.Bytes)
	}
	if kept.Note != "" {
		words += "; " + kept.Note
	}
	return words
}

func notKept(found *logarchive.Found, options *corev1.PodLogOptions, kept *logarchive.Container) *metav1.Status {
	which := "log"
	if options.Previous {
		which = "previous log"
	}
	words := "none is kept"
	if kept != nil {
		words = kept.Missing
	}
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf(
		"pod %q is gone, and the %s of its container %q is not in the log archive: %s", found.Pod.Name, which, options.Container, words))
}

// logOptionsOf reads the query of a request for a log, as API servers do. The status says what is wrong with it.
func logOptionsOf(query url.Values, pod *logarchive.Pod) (*corev1.PodLogOptions, *metav1.Status) {
	options := &corev1.PodLogOptions{Container: query.Get("container"), Previous: isTrue(query["previous"])}
	bad := func(format string, values ...any) (*corev1.PodLogOptions, *metav1.Status) {
		return nil, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf(format, values...))
	}
	for name, number := range map[string]struct {
		to  **int64
		min int64
	}{"tailLines": {&options.TailLines, 0}, "limitBytes": {&options.LimitBytes, 1}} {
		if text := query.Get(name); text != "" {
			value, err := strconv.ParseInt(text, 10, 64)
			if err != nil || value < number.min {
				return bad("%s is %q: must be a number of at least %d", name, text, number.min)
			}
			*number.to = &value
		}
	}
	var names []string
	for _, c := range pod.Containers {
		if !c.Previous && (!c.Init || c.Name == options.Container) {
			names = append(names, c.Name)
		}
	}
	switch {
	case options.Container == "" && len(names) == 1:
		options.Container = names[0]
	case options.Container == "":
		return bad("a container name must be specified for pod %s, choose one of: %v", pod.Name, names)
	case !slices.Contains(names, options.Container):
		return bad("container %s is not valid for pod %s", options.Container, pod.Name)
	}
	return options, nil
}

// cutLog cuts a log as the options say: first its last lines, then as many bytes from there on.
func cutLog(text []byte, options *corev1.PodLogOptions) []byte {
	if options.TailLines != nil {
		text = lastLines(text, *options.TailLines)
	}
	if options.LimitBytes != nil {
		text = text[:min(int64(len(text)), *options.LimitBytes)]
	}
	return text
}

func lastLines(text []byte, lines int64) []byte {
	at := len(text)
	if bytes.HasSuffix(text, []byte{'\n'}) {
		at--
	}
	if lines == 0 {
		return nil
	}
	for ; lines > 0 && at >= 0; lines-- {
		at = bytes.LastIndexByte(text[:at], '\n')
	}
	return text[at+1:]
}

// podOf makes a pod of what the archive knows, as much as a client needs to read its logs.
func podOf(x *logarchive.Index, kept *logarchive.Pod) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kindPod},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.Namespace, Name: kept.Name, UID: kept.UID, CreationTimestamp: kept.Created,
			Labels: map[string]string{
				v1alpha1.LabelCluster: string(x.Worker), v1alpha1.LabelLogArchived: "true", v1alpha1.LabelOriginUID: string(x.UID),
			},
			Annotations: map[string]string{
				v1alpha1.LabelLogArchived: x.KeptAt.Format(time.RFC3339), v1alpha1.AnnotationAttempt: strconv.Itoa(int(x.Number)),
			},
		},
		Spec:   corev1.PodSpec{NodeName: kept.Node},
		Status: corev1.PodStatus{Phase: kept.Phase, Message: fmt.Sprintf("the pod is gone: %s; its logs are in the log archive", x.Reason)},
	}
	for key, value := range kept.Labels {
		pod.Labels[key] = value
	}
	if kept.DefaultContainer != "" {
		pod.Annotations[logarchive.AnnotationDefaultContainer] = kept.DefaultContainer
	}
	for _, c := range kept.Containers {
		switch {
		case c.Previous:
		case c.Init:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: c.Name})
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name})
		}
	}
	return pod
}
