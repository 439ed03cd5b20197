/* Copyright The Trainyard Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Promise 1 under failover: a TrainJob never has two copies that can run.
 *
 * One job, one worker A behind a bad network, and everything else, called B, where what is placed runs at once. The network loses,
 * delays, reorders and repeats whatever it likes: a message that was sent stays deliverable for ever. Partitions, restarts of the hub,
 * a second manager and a paused one are all orders of these deliveries. Time is a tick that all clocks see, but the agent's may miss
 * up to DRIFT of the ticks in any span that matters. The agent is one of several replicas; one of them is alive, or takes over within
 * ELECTION ticks.
 *
 * The states of the job are those of dispatch/record. README.md says how to run this, what was explored, and which rule each of the
 * switches takes away.
 */

#ifndef FENCE
#define FENCE 3     /* fenceAfter, by the agent's clock */
#endif
#define STOP 1      /* how long before its deadline the agent begins to stop a copy, and how long its pods take to end */
#define DRIFT 1
#define ELECTION 1
#define HANDOVER 1
#ifndef WAIT
#define WAIT (FENCE + DRIFT + CRASHES * ELECTION + HANDOVER) /* how long the hub waits after it last read a challenge that it answered */
#endif

#ifndef CHALLENGES
#define CHALLENGES 3 /* how many challenges there are in a run of the model, all told */
#endif
#define ATTEMPTS 3
#ifndef CRASHES
#define CRASHES 2
#endif
#define OLD (FENCE + DRIFT + 1) /* an age of a challenge that is never told from a greater one */
#define NONE 255

/* --- the worker's API server --- */
byte issued = 1;              /* challenges that the agent has written: 0 .. issued-1 */
bool sent[CHALLENGES];        /* answers that the hub has sent, deliverable for ever */
bool creating[ATTEMPTS + 1];  /* creations that the hub has sent, by attempt, deliverable for ever */
byte stamp[ATTEMPTS + 1];     /* the challenge on each */
bool repeating;               /* the hub has sent the creation of attempt 1 once more, as it has got no answer */
byte stampAgain;              /* the challenge on that */
byte resuming;                /* attempt of the copy that the hub has sent a resumption for, 0: none; deliverable as long as the copy is there */
byte resumeStamp;             /* the challenge on it */
byte there;                   /* attempt of the copy that is there, 0: none */
byte stampThere;              /* the challenge with which it was created */
/* queued: the worker's Kueue has suspended the copy, and starts it when it likes; stopped: it has the agent's mark */
mtype = {gated, running, stopping, queued, stopped}
mtype copy = gated;
byte dying;                   /* ticks since the copy began to stop */
#ifdef KUEUE
bool queuing;                 /* it was Kueue that began to stop it */
#else
#define queuing false
#endif

/* --- the agent --- */
byte measured[CHALLENGES];    /* age of each challenge by the agent's clock */
bool known[CHALLENGES];       /* whether the agent that is at work knows when it was written */
byte answered = NONE;         /* the newest answered challenge that it knows */
bool up = true;
byte down;                    /* ticks without an agent */
byte tenure;                  /* ticks since the last takeover */
bool granted;                 /* a takeover has had its time to be answered, and was not */
byte crashes;
byte highest;                 /* the highest attempt that it has seen */
bool first = true;            /* the copy that is there is the first of its attempt, or the hub has stamped it since */
#ifdef NEWER_IS_CURRENT
byte stampSeen;               /* the challenge on the first copy of the highest attempt */
#endif

/* --- the hub --- */
byte age[CHALLENGES];         /* true age, to bound the drift */
byte read = NONE;             /* the last challenge that was read and answered */
byte silence;                 /* hub's ticks since then */
mtype = {Waiting, Placed, Copied, Lost, Ended, Leaving}
mtype state = Waiting;
byte attempt;
bool onA;                     /* where the current attempt is */
bool runsB;

#define aliveA (there != 0 && (copy == running || copy == stopping))

#ifdef COUNT_FROM_RECEIPT
byte receipt = OLD;           /* ticks since the agent has last got an answer, whatever was in it */
#define leaseAge receipt
#else
#define leaseAge measured[answered]
#endif

/* lease: valid while the agent may let copies run and need not begin to stop them */
#define hasAnswer (answered != NONE && known[answered])
#define valid (up && ((hasAnswer && leaseAge < FENCE - STOP) || (!hasAnswer && !granted && tenure < HANDOVER)))

inline writeChallenge() {
	measured[issued] = 0; age[issued] = 0; known[issued] = true; issued++
}

inline deliverAnswer(c) {
#ifdef COUNT_FROM_RECEIPT
	receipt = 0; answered = c; known[c] = true; granted = false
#else
	if
	:: known[c] && (answered == NONE || !known[answered] || c > answered) -> answered = c; granted = false
	:: else
	fi
#endif
}

#define fresh(c) (known[c] && measured[c] < FENCE - STOP)
#ifdef NO_STAMP
#define admitted first
#define resumable true
#else
#define admitted (fresh(stampThere) && first)
#define resumable fresh(resumeStamp)
#endif

/* a copy is created, and those who watch see it */
inline arrive(n, c) {
	there = n; copy = gated; stampThere = c;
#ifndef NO_MEMORY
	if
	:: n > highest -> highest = n; first = true
#ifdef NEWER_IS_CURRENT
	:: n == highest && c > stampSeen -> first = true
#endif
	:: else -> first = false
	fi;
#ifdef NEWER_IS_CURRENT
	if
	:: first -> stampSeen = c
	:: else
	fi
#endif
#endif
}

/* the agent stops a copy, and marks it, whoever has suspended it before */
inline fence() {
	if
	:: copy == running -> copy = stopping; dying = 0
	:: copy == queued -> copy = stopped
	:: else
	fi;
	notQueuing()
}

/* the pods of a copy have ended */
inline podsEnd() {
	if
	:: queuing -> copy = queued
	:: else -> copy = stopped
	fi;
	dying = 0; notQueuing()
}

#ifdef KUEUE
inline notQueuing() { queuing = false }
/* where Kueue has the copy, a resumption takes the mark off, and Kueue starts the copy, now or later */
#define resumed queued
#else
inline notQueuing() { skip }
#define resumed running
#endif

inline vanish() { there = 0; copy = gated; resuming = 0; stampThere = 0; first = true; dying = 0; notQueuing() }

/* slow: the agent's clock misses this tick, which it may if it has not missed too many */
inline tick(slow) {
	i = 0;
	do
	:: i < issued ->
		if
		:: age[i] < OLD -> age[i]++
		:: else
		fi;
		if
		:: !slow && measured[i] < OLD -> measured[i]++
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: silence <= WAIT -> silence++
	:: else
	fi;
#ifdef COUNT_FROM_RECEIPT
	if
	:: !slow && receipt < OLD -> receipt++
	:: else
	fi;
#endif
	if
	:: !up -> down++
	:: up && tenure < HANDOVER && !slow -> tenure++
	:: else
	fi;
	if
	:: there != 0 && copy == stopping -> dying++
	:: else
	fi
}

#define inStep(c) (c >= issued || age[c] == OLD || age[c] < measured[c] + DRIFT)
#if CHALLENGES == 3
#define mayMiss (inStep(0) && inStep(1) && inStep(2))
#else
#define mayMiss (inStep(0) && inStep(1) && inStep(2) && inStep(3))
#endif

inline forget() {
	i = 0;
	do
	:: i < CHALLENGES -> known[i] = false; i++
	:: else -> break
	od;
	/* of the copies it knows the one that is there, and no challenge from before */
	i = 0; answered = NONE; highest = there; first = true
}

inline takeOver() {
	up = true; down = 0;
#ifndef ENDLESS_HANDOVER
	granted = (!hasAnswer && crashes > 1); /* the one before had no answer either, perhaps */
#endif
	tenure = 0
}

/* what must happen before time goes on */
#define unmarked (copy == running || copy == queued || (copy == stopping && queuing))
#define agentIsDue (up && there != 0 && unmarked && !valid)
#define podsAreDue (there != 0 && copy == stopping && dying >= STOP)
#define electionIsDue (!up && down >= ELECTION)

init {
	byte i;
	known[0] = true;
	do
	/* ---------- time ---------- */
	:: d_step { !agentIsDue && !podsAreDue && !electionIsDue -> tick(false); printf("time goes on: silence %d\n", silence) }
	:: d_step { !agentIsDue && !podsAreDue && !electionIsDue && mayMiss -> tick(true); printf("time goes on, the agent misses it: silence %d\n", silence) }

	/* ---------- the agent ---------- */
	:: d_step { up && issued < CHALLENGES -> writeChallenge(); printf("agent writes challenge %d\n", issued - 1) }
	:: d_step { up && there != 0 && copy == gated && valid && hasAnswer && admitted ->
		copy = running; printf("agent starts attempt %d\n", there) }
	/* what is not the first copy of its attempt waits for the hub, as what was stopped does */
	:: d_step { up && there != 0 && copy == gated && !first -> copy = stopped; printf("agent refuses a second copy of attempt %d\n", there) }
	:: d_step { agentIsDue -> fence(); printf("agent stops attempt %d\n", there) }
	:: d_step { there != 0 && copy == stopping -> podsEnd(); printf("pods of attempt %d have ended\n", there) }
	:: d_step { up && crashes < CRASHES -> crashes++; up = false; down = 0; printf("agent dies\n") }
	/* a standby that has watched knows what the one before knew, one that has not knows nothing */
	:: d_step { !up -> takeOver(); printf("a standby takes over, granted before: %d\n", granted) }
	:: d_step { !up -> forget(); takeOver(); printf("an agent that knows nothing takes over, granted before: %d\n", granted) }

	/* ---------- messages that arrive, late, again, or in another order ---------- */
	:: d_step { up && sent[0] -> deliverAnswer(0); printf("answer 0 arrives\n") }
	:: d_step { up && sent[1] -> deliverAnswer(1); printf("answer 1 arrives\n") }
	:: d_step { up && sent[2] -> deliverAnswer(2); printf("answer 2 arrives\n") }
#if CHALLENGES > 3
	:: d_step { up && sent[3] -> deliverAnswer(3); printf("answer 3 arrives\n") }
#endif
	:: d_step { there == 0 && creating[1] -> arrive(1, stamp[1]); printf("creation of attempt 1 arrives\n") }
#ifdef TWICE
	:: d_step { there == 0 && repeating -> arrive(1, stampAgain); printf("creation of attempt 1 that was sent again arrives\n") }
#endif
	:: d_step { there == 0 && creating[3] -> arrive(3, stamp[3]); printf("creation of attempt 3 arrives\n") }

	:: d_step { resuming != 0 && resuming == there && copy == stopped && valid && hasAnswer && resumable ->
		copy = resumed; first = true; resuming = 0; printf("attempt %d is resumed\n", there) }

#ifdef KUEUE
	/* ---------- the worker's Kueue: it knows of no lease ---------- */
	:: d_step { there != 0 && copy == running -> copy = stopping; dying = 0; queuing = true; printf("Kueue preempts attempt %d\n", there) }
	:: d_step { there != 0 && copy == queued -> copy = running; printf("Kueue starts attempt %d\n", there) }
#ifdef KUEUE_UNDOES
	/* the broken rule: the API server lets anybody resume what the agent has stopped */
	:: d_step { there != 0 && copy == stopped -> copy = running; printf("Kueue starts attempt %d, which the agent has stopped\n", there) }
#endif
#endif

	/* ---------- the hub ---------- */
	/* it reads some challenge, perhaps an old one, and answers it; what it counts from is on record before the answer is sent */
	:: d_step { (read == NONE && issued > 0) || (read != NONE && read + 1 < issued) ->
		if
		:: read == NONE -> read = 0
		:: else -> read++
		fi;
#ifndef COUNT_FROM_SUCCESS
		silence = 0;
#endif
		sent[read] = true; printf("hub reads and answers challenge %d\n", read) }
#ifdef COUNT_FROM_SUCCESS
	/* the broken rule: count from the last answer that the hub knows to have arrived */
	:: d_step { read != NONE && answered == read -> silence = 0 }
#endif

	/* a new leader knows nothing of the one before, which answers no more */
	:: d_step { silence > 0 -> silence = 0; printf("a new leader\n") }

	:: d_step { state == Waiting && attempt < ATTEMPTS && attempt % 2 == 0 && read != NONE && there == 0 ->
		attempt++; onA = true; stamp[attempt] = read; creating[attempt] = true; state = Placed; printf("hub places attempt %d on A with challenge %d\n", attempt, read) }
#ifdef TWICE
	/* the answer to the creation is lost, so it is sent again */
	:: d_step { state == Placed && attempt == 1 && !repeating ->
		repeating = true; stampAgain = read; printf("hub sends the creation of attempt 1 again with challenge %d\n", read) }
#endif
	:: d_step { state == Placed && there == attempt -> state = Copied }
	:: d_step { (state == Placed || state == Copied) && onA -> state = Lost; printf("hub loses A\n") }
	:: d_step { state == Lost && there == attempt -> state = Copied }
	/* contact has returned in time: the hub resumes what the agent has stopped */
	:: d_step { state == Copied && onA && there == attempt && copy == stopped && read != NONE && resuming == 0 ->
		resuming = attempt; resumeStamp = read; printf("hub resumes attempt %d with challenge %d\n", attempt, read) }
	/* failover by time */
	:: d_step { state == Lost && silence > WAIT -> state = Ended; printf("hub ends attempt %d by time\n", attempt) }
	/* failover by proof: the hub sees that the copy is stopped, and deletes it */
	:: d_step { state == Copied && onA && there == attempt && copy == stopped -> vanish(); state = Ended; printf("hub sees attempt %d stopped, and ends it\n", attempt) }
	/* eviction: it deletes the copy, and sees when its pods have ended */
	:: d_step { state == Copied && onA && there == attempt && copy == running -> copy = stopping; dying = 0; printf("hub evicts attempt %d\n", attempt) }
	:: d_step { state == Copied && onA && there == attempt && copy == queued -> vanish(); state = Ended; printf("hub evicts attempt %d, which is queued\n", attempt) }
	/* a copy of an attempt that is over is deleted when the hub sees it; its pods end first */
	:: d_step { there != 0 && (there < attempt || state == Ended || state == Waiting) && copy == running -> copy = stopping; dying = 0 }
	:: d_step { there != 0 && (there < attempt || state == Ended || state == Waiting) && (copy == gated || copy == queued || copy == stopped) -> vanish() }
	:: d_step { state == Ended -> state = Waiting }
	:: d_step { state == Waiting && attempt % 2 == 1 && attempt < ATTEMPTS -> attempt++; onA = false; runsB = true; state = Copied; printf("attempt %d runs on B\n", attempt) }
	/* the job leaves B as it should: when its pods have ended */
	:: d_step { state == Copied && !onA && runsB -> state = Leaving }
	:: d_step { state == Leaving -> runsB = false; state = Waiting }
	od
}

active proctype promise() { atomic { aliveA && runsB -> assert(false) } }
