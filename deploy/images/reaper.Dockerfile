# The image of the reaper. Its context is what `deploy/images/build` has laid out: nothing is fetched here.
ARG BASE=python:3.11-slim
FROM ${BASE}
RUN python3 -m venv --without-pip /opt/sexton
ENV PATH=/opt/sexton/bin:/opt/sexton/java/bin:$PATH \
    JAVA_HOME=/opt/sexton/java \
    PYSPARK_PYTHON=/opt/sexton/bin/python \
    SPARK_WORKER_DIR=/tmp/spark-work \
    SEXTON_CACHE_DIR=/opt/sexton/cache \
    SEXTON_METRICS_BIND=0.0.0.0 \
    SEXTON_METRICS_PORT=9350
EXPOSE 9350
HEALTHCHECK --interval=5s --timeout=5s --start-period=300s --retries=3 \
  CMD ["python", "/opt/sexton/bin/healthcheck.py", "reaper"]
ENTRYPOINT ["entrypoint"]
CMD ["sexton", "reaper", "run"]
COPY packages/ /
COPY own/ /
# The wrapper of the wheel's Java is made here, where it can be written. /etc/passwd is a link that leads somewhere
# once a container runs: see `entrypoint`.
RUN JAVA_HOME= python -m sexton.deploy.java && ln -s /opt/sexton/cache/java-* /opt/sexton/java \
 && ln -sf /tmp/passwd /etc/passwd && mkdir -m 1777 /var/lib/sexton
# No user of /etc/passwd: the image runs as any, and by default not as root.
USER 10001:0
WORKDIR /var/lib/sexton
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sexton-reaper" \
      org.opencontainers.image.description="Sexton's streaming job, and a Spark master or worker for it" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
