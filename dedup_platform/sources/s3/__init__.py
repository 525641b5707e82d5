"""Objects on S3, or on what speaks like it, as files of a source: listed by their keys, read as they were listed.

Nothing is imported here: workers that read other files need not wait for boto3.
"""
