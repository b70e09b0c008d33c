"""DBOS for Python, on PostgreSQL: a peer of `cargo xtask bench flows`, which starts it and says what it wants.

The clients are threads, because that is how DBOS runs functions that are not coroutines; what they do, what is said to
the benchmark and how latencies are counted is as in src/task.rs and ../shared/drive.rs.
"""

import json
import os
import secrets
import sys
import threading
import time
import uuid

import psycopg
import sqlalchemy
from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

STEPS = ["reserve", "charge", "record"]


def steps(url):
    """Plain steps: a step runs, commits its line by itself, and is recorded afterwards."""
    mine = threading.local()

    def connection():
        if not hasattr(mine, "connection"):
            mine.connection = psycopg.connect(url, autocommit=True)
        return mine.connection

    def step(name, number):
        @DBOS.step(name=name)
        def write(order):
            connection().execute(
                "INSERT INTO bench_lines (flow, step, amount) VALUES (%s, %s, %s)",
                (order["number"], number, order["amount"]),
            )

        return write

    return [step(name, number) for number, name in enumerate(STEPS, 1)]


def transactions(url, clients):
    """Transactions: the line is committed with a record beside it, and the step is recorded afterwards."""
    source = SQLAlchemyDatasource.create(url, engine_kwargs={"pool_size": clients, "max_overflow": 0})
    line = sqlalchemy.text("INSERT INTO bench_lines (flow, step, amount) VALUES (:flow, :step, :amount)")

    def step(name, number):
        @source.transaction(name=name, isolation_level="READ COMMITTED")
        def write(order):
            values = {"flow": order["number"], "step": number, "amount": order["amount"]}
            source.sql_session().execute(line, values)

        return write

    return [step(name, number) for number, name in enumerate(STEPS, 1)]


def receipt(order):
    return {"id": f"or_{order['number']:016}", "status": "completed", "order": order}


def identifier():
    """A UUID of version 7, like those of the other contestants: neighbours in time are neighbours in the index."""
    stamp = int(time.time() * 1000) << 80
    return str(uuid.UUID(int=stamp | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)))


class Clients:
    """Threads that ask again as soon as they are answered."""

    def __init__(self, task, operate):
        self.task, self.operate = task, operate
        self.is_measured = self.is_over = False
        self.failure = None
        # A place for each client: a sum that several threads add to loses some.
        self.done = [0] * task["clients"]
        self.micros = [[] for _ in range(task["clients"])]
        self.threads = [threading.Thread(target=self.ask, args=(client,)) for client in range(task["clients"])]

    def ask(self, client):
        number = self.task["first"] + client
        try:
            while not self.is_over:
                at = time.perf_counter()
                self.operate(number)
                self.done[client] += 1
                if self.is_measured:
                    self.micros[client].append(int((time.perf_counter() - at) * 1_000_000))
                number += self.task["clients"]
        except BaseException as failure:
            self.failure = failure
            self.is_over = True

    def drive(self, reading):
        for thread in self.threads:
            thread.start()
        time.sleep(self.task["warm_up_ms"] / 1000)
        reading()
        self.is_measured = True
        at, before = time.perf_counter(), sum(self.done)
        time.sleep(self.task["measured_ms"] / 1000)
        operations = sum(self.done) - before
        lasted = time.perf_counter() - at
        self.is_measured = False
        reading()
        self.is_over = True
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure
        if operations == 0:
            raise RuntimeError("nothing was done: measure for longer")
        return {
            "said": "ended",
            "operations": operations,
            "total": sum(self.done),
            "per_second": operations / lasted,
            "latency": latency(sorted(micros for client in self.micros for micros in client)),
        }


def latency(micros):
    def at(share):
        return micros[int((len(micros) - 1) * share + 0.5)] / 1000 if micros else 0.0

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}


def main():
    task = json.loads(sys.argv[1])
    # Whatever else is printed goes to the standard error.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(said):
        print(json.dumps(said), file=output, flush=True)

    def reading():
        say({"said": "reading"})
        if not sys.stdin.readline():
            raise RuntimeError("the benchmark has gone")

    url = task["url"].replace("postgres://", "postgresql://", 1)
    DBOS(
        config={
            "name": "semel-bench",
            "system_database_url": url,
            "application_version": "1",
            "sys_db_pool_size": task["connections"],
            # A connection is not tested each time that it is taken, as those of the other contestants are not.
            "db_engine_kwargs": {"pool_pre_ping": False},
            "log_level": "ERROR",
        }
    )
    done = transactions(url, task["clients"]) if task["transactions"] else steps(url)

    @DBOS.workflow(name="order")
    def complete(order):
        for step in done:
            step(order)
        return receipt(order)

    def operate(number):
        order = {"number": number, "amount": 42}
        with SetWorkflowID(identifier()):
            answer = complete(order)
        if answer != receipt(order):
            raise RuntimeError("an order ended with another's receipt")

    DBOS.launch()
    say(Clients(task, operate).drive(reading))
    output.close()
    DBOS.destroy()


if __name__ == "__main__":
    main()
