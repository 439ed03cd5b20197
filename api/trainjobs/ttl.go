// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"fmt"
	"strconv"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// maxTTLSeconds keeps the sum of a time and a TTL within the range of time.Duration.
const maxTTLSeconds = 1 << 32

// TTL returns how long a TrainJob with these annotations stays after its end (v1alpha1.AnnotationTTL), and whether that
// is limited. Its error says which values are valid, without the names of annotation and value.
func TTL(annotations map[string]string) (ttl time.Duration, limited bool, err error) {
	value, ok := annotations[v1alpha1.AnnotationTTL]
	if !ok {
		return 0, false, nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds < 0 || seconds > maxTTLSeconds {
		return 0, false, fmt.Errorf("must be a number of seconds: an integer from 0 to %d", int64(maxTTLSeconds))
	}
	return time.Duration(seconds) * time.Second, true, nil
}
