// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trace reads recorded jobs in the formats of three published traces.
//
//   - philly: the file cluster_job_log of Microsoft's Philly traces (github.com/msr-fiddle/philly-traces), JSON. A
//     job's pods are the servers of the attempt with the most GPUs, and its duration is the duration of all attempts.
//     CPU was not recorded.
//   - pai: pai_task_table.csv of Alibaba's cluster-trace-gpu-v2020 (github.com/alibaba/clusterdata), with or without
//     the line of names. The published names are in separate files. A job's pods are the instances of its tasks. It
//     lasts from the beginning of the first task to the end of the last task. It is submitted when pai_job_table.csv
//     says so, or when its first task begins. Shares of GPUs are rounded up to whole ones.
//   - openb: openb_pod_list_*.csv of Alibaba's cluster-trace-gpu-v2023 (same place). Each pod is a job; shares of GPUs
//     are rounded up.
//
// Jobs that did not run to their end, or whose times are not known, are left out and counted. Anything else that is
// wrong is an error, which says where it is.
package trace
