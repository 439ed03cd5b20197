// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// maxWords is how many bytes of another program's text a message may have.
const maxWords = 200

var (
	// errorPrefix matches what kubelet, gRPC, containerd and runc write before a cause. It can be longer than the whole
	// message: it has the image's name three times, and the trouble already has it.
	errorPrefix = regexp.MustCompile(`^(Back-off pulling image "[^"]*"(: |$)|(ErrImagePull|RegistryUnavailable|SignatureValidationFailed): ` +
		`|rpc error: code = \w+ desc = ` +
		`|failed to (pull and unpack image|resolve reference|pull image|resolve image) "[^"]*": ` +
		`|failed to (create|start) (containerd|shim) task: |OCI runtime (create|start) failed: |runc create failed: ` +
		`|unable to start container process: |error during container init: )`)
	// urlQuery matches queries of URLs. A query can be a signature that allows to read the image, and often changes.
	urlQuery = regexp.MustCompile(`(https?://[^\s"'?]+)\?[^\s"']*`)
	// localPort matches a connection's own port, which often changes: "10.0.0.7:43210->10.0.0.1:443: connection reset".
	localPort = regexp.MustCompile(`(:\d+)+->`)

	nodeCounts   = regexp.MustCompile(`^\d+/\d+ nodes are available: `)
	reasonCounts = regexp.MustCompile(`(^|, )\d+ `)
)

// waitingWords returns the kubelet's cause for a waiting container, without what changes at each retry. A pull has
// first "ErrImagePull" with the error, then "ImagePullBackOff" with "Back-off pulling image ...: " and the same error.
func waitingWords(w *corev1.ContainerStateWaiting) string {
	return errorWords(w.Message)
}

// errorWords returns the cause at the end of an error's chain, without parts that change each time.
func errorWords(text string) string {
	text = strings.TrimSpace(text)
	for errorPrefix.MatchString(text) {
		text = strings.TrimSpace(errorPrefix.ReplaceAllString(text, ""))
	}
	return line(localPort.ReplaceAllString(text, "->"))
}

// schedulerWords returns the scheduler's message without its counts of nodes, which change often, and without what its
// plugins could not do to make room, which follows from the rest:
//
//	0/5 nodes are available: 2 node(s) had untolerated taint {gpu: }, 3 Insufficient nvidia.com/gpu. preemption: 0/5 nodes ...
//	0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/2 nodes ...
func schedulerWords(reason, message string) string {
	text, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	if i := strings.Index(text, "preemption: "); i >= 0 {
		text = beforeLastSentence(text[:i])
	}
	if counted := nodeCounts.FindString(text); counted != "" {
		text = strings.TrimRight(text[len(counted):], " .,")
		parts := strings.Split(reasonCounts.ReplaceAllString(text, "\x00"), "\x00")
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		slices.Sort(parts)
		text = strings.Join(slices.Compact(parts), "; ")
	}
	if text == "" {
		return reason
	}
	return cut(text)
}

// beforeLastSentence returns a text without its last, incomplete sentence.
func beforeLastSentence(text string) string {
	if i := strings.LastIndex(text, ". "); i >= 0 {
		return text[:i]
	}
	return text
}

// endWords returns the most useful line of a container's termination message: the first line if the program wrote the
// message, the last line if the kubelet copied the end of the log.
func endWords(pod *corev1.Pod, name string, t *corev1.ContainerStateTerminated) string {
	text := strings.TrimSpace(t.Message)
	if i := strings.LastIndexByte(text, '\n'); i >= 0 && fallsBackToLogs(pod, name) {
		text = text[i+1:]
	}
	if t.Reason == startError || t.Reason == couldNotRun {
		return errorWords(text)
	}
	return line(text)
}

func fallsBackToLogs(pod *corev1.Pod, name string) bool {
	falls := func(c corev1.Container) bool {
		return c.Name == name && c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, falls) || slices.ContainsFunc(pod.Spec.Containers, falls)
}

// line returns the first line of a text, cut to maxWords.
func line(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return cut(text)
}

// cut removes secrets from URLs and cuts a text to maxWords of valid UTF-8. A second call changes nothing.
func cut(text string) string {
	const dots = "..."
	text = strings.TrimSpace(urlQuery.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "$1"))
	if len(text) <= maxWords {
		return text
	}
	end := maxWords - len(dots)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:end]) + dots
}
