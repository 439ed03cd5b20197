// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Right is a right of the hub on a worker without which the worker takes jobs all the same.
type Right string

// The rights.
const (
	// ReadLogs is the right to read logs of pods, which config/worker-logs grants.
	ReadLogs Right = "ReadLogs"
	// LookUp is the right to get Secrets, and so the rest that config/worker-lookup grants.
	LookUp Right = "LookUp"
)

const (
	// absent is the name of objects that are not there: a worker says so only to who has the right to get them.
	absent = "trainyard-probe"
	// rightPause is how many probe intervals pass before a worker is asked again that refuses a right, or does not answer: the
	// question must not hold up the probes. So it is after a doubt.
	rightPause = 6
)

// permission is what is known of a right.
type permission int

const (
	unasked permission = iota
	permitted
	refused
)

// grant is the answer of a worker that was asked for a right.
type grant struct {
	permission permission
	asked      time.Time
	// doubted: somebody has found out that the worker forbids what such a right permits.
	doubted bool
}

// permission finds out whether the worker grants a right. It asks for an object that is not there.
func (p *prober) permission(ctx context.Context, right Right) permission {
	var err error
	switch right {
	case ReadLogs:
		err = p.rest.Get().AbsPath("/api/v1/namespaces/" + metav1.NamespaceSystem + "/pods/" + absent + "/log").Do(ctx).Error()
	case LookUp: // Of a Secret that is there all the same, only the metadata would come.
		_, err = p.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(metav1.NamespaceSystem).
			Get(ctx, absent, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsForbidden(err):
		return refused
	case err == nil, apierrors.IsNotFound(err):
		return permitted
	}
	return unasked
}

// askRights asks for the rights that the worker is not known to grant.
func (l *loop) askRights() {
	if l.seen.rights == nil {
		l.seen.rights = map[Right]grant{}
	}
	doubted := takeRightsDoubted(l)
	for _, right := range l.opts.Rights {
		known, asked := l.seen.rights[right]
		if known.doubted = known.doubted || doubted; asked && (known.permission == permitted && !known.doubted ||
			l.opts.Clock.Since(known.asked) < rightPause*l.opts.ProbeInterval) {
			l.seen.rights[right] = known
			continue
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.opts.RequestTimeout)
		answer := l.prober.permission(ctx, right)
		cancel()
		if answer == unasked {
			answer = known.permission // No answer says nothing.
		}
		l.seen.rights[right] = grant{permission: answer, asked: l.opts.Clock.Now()}
	}
}

// takeRightsDoubted says whether to ask again for all rights.
func takeRightsDoubted(l *loop) (doubted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	doubted, l.locked.rightsDoubted = l.locked.rightsDoubted, false
	return doubted
}

// forbidden returns those of the rights that the worker refuses.
func (f *observation) forbidden(rights []Right) (forbidden []Right) {
	for _, right := range rights {
		if f.rights[right].permission == refused {
			forbidden = append(forbidden, right)
		}
	}
	return forbidden
}

// DoubtRights makes the connection ask again which rights the worker grants. Call it when the worker has forbidden something
// that such a right permits.
func (c *Cluster) DoubtRights() {
	c.mu.Lock()
	c.locked.rightsDoubted = true
	c.mu.Unlock()
	poke(c.wake)
}
