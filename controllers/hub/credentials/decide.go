// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// earliest and spread say when a token is renewed: when 40 to 50 % of its life are over. The spread keeps the tokens
	// of workers that joined together from being renewed together.
	earliest, spread = 0.4, 0.1
	// minRetryInterval and maxRetryInterval bound the time between two tries to renew a token.
	minRetryInterval, maxRetryInterval = time.Minute, 10 * time.Minute
	// warningTime is how long before its end a credential that nobody renews is reported. It is less for credentials that
	// do not live long: a fifth of their life.
	warningTime = 7 * 24 * time.Hour
)

// observation is what is known of the credentials of one worker.
type observation struct {
	worker v1alpha1.ClusterName
	// issued and expires are the life of the credentials, of a token that the manager has requested from the request on.
	// Zero: not known.
	issued, expires time.Time
	// managed is true if the Secret says that the manager is to renew the token.
	managed bool
	// fault is why a managed token cannot be renewed, whatever is tried.
	fault error
	now   time.Time
}

// decision is what to do about the credentials of one worker.
type decision struct {
	// renew says to renew the token now.
	renew bool
	// reason and message are for CredentialsExpiring. Without a reason there is no such condition. They hold unless a
	// renewal changes that.
	reason, message string
	// again is when to look again if nothing happens. Zero: never.
	again time.Time
}

// decide returns what to do.
func (o *observation) decide() decision {
	switch {
	case o.expires.IsZero():
		return decision{}
	case o.managed && o.fault == nil:
		due := o.renewalTime()
		return decision{renew: !o.now.Before(due), again: due}
	}
	due := o.expires.Add(-o.warning())
	if o.now.Before(due) {
		return decision{again: due}
	}
	if o.fault != nil {
		return decision{reason: v1alpha1.ReasonRenewalFailed, message: o.renewalMessage(o.fault)}
	}
	return decision{reason: v1alpha1.ReasonExpiresSoon, message: fmt.Sprintf("the credentials expire at %s, and the manager does not renew them: "+
		"give new ones, or let \"kubectl trainyard join %s --context WORKER\" make some that the manager renews", o.end(), o.worker)}
}

// renewalTime is when a token is renewed. It is the same after a restart of the manager.
func (o *observation) renewalTime() time.Time {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s/%d", o.worker, o.issued.Unix())
	share := earliest + spread*float64(hash.Sum32())/float64(1<<32)
	return o.issued.Add(time.Duration(share * float64(o.expires.Sub(o.issued))))
}

// retryInterval is the time until the next try after one that has failed. There are a hundred tries at least before the
// token ends, if it is not about to end, and workers that do not answer leave room for others.
func (o *observation) retryInterval() time.Duration {
	return min(max(o.expires.Sub(o.now)/100, minRetryInterval), maxRetryInterval)
}

// warning is how long before their end the credentials are reported.
func (o *observation) warning() time.Duration {
	if o.issued.IsZero() {
		return warningTime
	}
	return min(warningTime, o.expires.Sub(o.issued)/5)
}

func (o *observation) renewalMessage(err error) string {
	return fmt.Sprintf("the token expires at %s, and could not be renewed: %s; \"kubectl trainyard join %s --context WORKER\" makes a new one",
		o.end(), record.Shorten(err.Error(), maxMessage), o.worker)
}

func (o *observation) end() string { return o.expires.UTC().Format(time.RFC3339) }
